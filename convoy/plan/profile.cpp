#include "convoy/plan/profile.hpp"

#include <algorithm>
#include <optional>
#include <set>

#include <fmt/format.h>

#include "convoy/base/error.hpp"
#include "convoy/engine/conv_trial.hpp"
#include "convoy/engine/crew.hpp"
#include "convoy/engine/peak.hpp"

namespace convoy::plan {
namespace {

using engine::Algorithm;
using engine::ConvShape;
using engine::Direction;

/// Work of the definition that is enough to measure: beyond it, time grows with the images.
constexpr Flops kEnoughWork{2e9};
/// No kernel comes nearer to the FMA peak than this.
constexpr double kBestEfficiency = 0.95;
/// Likely winners first: what cannot win any more is then not measured.
constexpr Algorithm kOrder[] = {Algorithm::direct, Algorithm::winograd4, Algorithm::winograd2,
                                Algorithm::fft, Algorithm::lowering};
static_assert(std::size(kOrder) == std::size(engine::kAlgorithms));

/// Seconds of the three directions, and of preparing the weights.
struct Measured {
  std::array<double, 3> directions{};
  double preparation = 0;
};

std::string shape_key(const ConvShape& s) {
  return fmt::format(
      "n{} {}x{}x{} to {} kernel {}x{} stride {}x{} pad {}x{} dilation {}x{}{}{}", s.n, s.ic, s.ih,
      s.iw, s.oc, s.kh, s.kw, s.stride_h, s.stride_w, s.pad_h, s.pad_w, s.dilation_h, s.dilation_w,
      s.groups > 1 ? fmt::format(" groups {}", s.groups) : "", s.plain_input ? " plain" : "");
}

/// The same convolution on as many images as are enough to measure.
ConvShape measured_shape(const ConvShape& s) {
  const double image = engine::conv_work(s).value / static_cast<double>(s.n);
  ConvShape small = s;
  for (small.n = 1; small.n < s.n; ++small.n) {
    if (s.n % small.n == 0 && image * static_cast<double>(small.n) >= kEnoughWork.value) break;
  }
  return small;
}

/// Every lane measures, all at the same time, as they will work; their mean counts.
Measured measure(const ConvShape& s, const engine::ConvAlgorithms& algorithms,
                 const ProfileOptions& options) {
  std::vector<Measured> of_lane(static_cast<size_t>(options.lanes));
  engine::Crew crew(options.lanes, options.cores);
  crew.run([&](int lane) {
    engine::ConvTrial trial(s, algorithms, options.threads_per_lane);
    trial.fill(1);
    Measured& m = of_lane[static_cast<size_t>(lane)];
    for (const Direction direction : engine::kDirections) {
      if (trial.kernel(direction).empty()) continue;
      m.directions[static_cast<size_t>(direction)] = median_seconds([&] { trial.run(direction); });
    }
    m.preparation = median_seconds([&] { trial.prepare(); });
  });
  Measured mean;
  for (const Measured& m : of_lane) {
    for (size_t d = 0; d < 3; ++d) mean.directions[d] += m.directions[d] / options.lanes;
    mean.preparation += m.preparation / options.lanes;
  }
  return mean;
}

class Profiler {
 public:
  Profiler(const ProfileOptions& options, Measurements& known)
      : options_(options),
        known_(known),
        layout_(fmt::format("{} lanes of {}", options.lanes, options.threads_per_lane)) {}

  /// Announces a layer, so that progress can be told.
  void expect(const ConvProfile& profile, bool first) {
    for (const Algorithm algorithm : kOrder) {
      if (possible(profile.shape, algorithm, first).empty()) continue;
      const std::string what = key(profile.shape, algorithm);
      if (!known_.find(what)) to_do_.insert(what);
    }
  }

  /// Fills in the timings of a layer.
  void fill(ConvProfile& profile, bool first) {
    const ConvShape& s = profile.shape;
    for (const Algorithm algorithm : kOrder) {
      const std::vector<Direction> directions = possible(s, algorithm, first);
      if (directions.empty()) continue;
      const std::string what = key(s, algorithm);
      auto values = known_.find(what);
      to_do_.erase(what);
      if (!values) {
        if (too_large(s, algorithm, directions)) continue;
        if (hopeless(profile, algorithm, directions)) continue;
        tell(what, static_cast<int>(to_do_.size()) + 1);
        ++measured_;
        engine::ConvAlgorithms algorithms;
        for (const Direction d : directions) algorithms.of(d) = algorithm;
        const Measured m = measure(measured_shape(s), algorithms, options_);
        values = {m.directions[0], m.directions[1], m.directions[2], m.preparation};
        known_.put(what, *values);
      }
      add(profile, algorithm, directions, *values);
    }
  }

  void finish() const {
    if (measured_ > 0) tell("", 0);
  }

 private:
  void tell(const std::string& what, int left) const {
    if (options_.progress) options_.progress(measured_, measured_ + left, what);
  }

  std::string key(const ConvShape& s, Algorithm algorithm) const {
    return fmt::format("{}, {}, {}", to_string(algorithm), shape_key(measured_shape(s)), layout_);
  }

  std::vector<Direction> possible(const ConvShape& s, Algorithm algorithm, bool first) const {
    std::vector<Direction> directions;
    if (options_.exact && algorithm == Algorithm::winograd4) return directions;
    for (const Direction direction : engine::kDirections) {
      if (first && direction == Direction::backward_data) continue;
      if (!engine::obstacle(engine::select_kernels(), s, algorithm, direction).empty()) continue;
      directions.push_back(direction);
    }
    return directions;
  }

  /// Whether trying it takes more memory than there is; then training would, too.
  bool too_large(const ConvShape& s, Algorithm algorithm,
                 const std::vector<Direction>& directions) const {
    if (options_.memory.value == 0 || algorithm == Algorithm::direct) return false;
    Bytes workspace{0};
    Bytes kept{0};
    for (const Direction d : directions) {
      const engine::ConvCost cost = engine::conv_cost(engine::select_kernels(), measured_shape(s),
                                                      algorithm, d, options_.threads_per_lane);
      workspace = std::max(workspace, cost.workspace);
      kept += cost.kept;
    }
    return options_.lanes * (workspace + kept) > options_.memory;
  }

  /// Whether its arithmetic alone takes longer than what was measured of others.
  bool hopeless(const ConvProfile& profile, Algorithm algorithm,
                const std::vector<Direction>& directions) {
    if (options_.thorough || algorithm == Algorithm::direct) return false;
    return std::all_of(directions.begin(), directions.end(), [&](Direction d) {
      const engine::ConvCost cost = engine::conv_cost(engine::select_kernels(), profile.shape,
                                                      algorithm, d, options_.threads_per_lane);
      const double least = cost.work.value / (kBestEfficiency * peak());
      const auto& timings = profile.of(d);
      return std::any_of(timings.begin(), timings.end(),
                         [&](const ConvTiming& t) { return t.time.value <= least; });
    });
  }

  /// FLOP/s of a lane.
  double peak() {
    constexpr const char* kKey = "fma peak of a core, FLOP/s";
    if (!known_.find(kKey)) {
      known_.put(kKey, {1e9 * engine::measure_peak(options_.lanes).fma_gflops_per_core});
    }
    return known_.find(kKey)->at(0) * options_.threads_per_lane;
  }

  void add(ConvProfile& profile, Algorithm algorithm, const std::vector<Direction>& directions,
           const std::vector<double>& values) const {
    const ConvShape& s = profile.shape;
    const double images = static_cast<double>(s.n) / static_cast<double>(measured_shape(s).n);
    for (const Direction d : directions) {
      const engine::ConvCost cost =
          engine::conv_cost(engine::select_kernels(), s, algorithm, d, options_.threads_per_lane);
      ConvTiming timing;
      timing.algorithm = algorithm;
      timing.time = {values.at(static_cast<size_t>(d)) * images};
      // Preparing is measured for forward and backward-data together.
      if (d != Direction::backward_weights) timing.preparation = {values.at(3) / 2};
      timing.workspace = cost.workspace;
      timing.kept = cost.kept;
      profile.of(d).push_back(timing);
    }
  }

  const ProfileOptions& options_;
  Measurements& known_;
  std::string layout_;
  std::set<std::string> to_do_;
  int measured_ = 0;
};

}  // namespace

std::vector<ConvProfile> profile_convolutions(const model::Graph& graph,
                                              const ProfileOptions& options, Measurements& known) {
  std::vector<ConvProfile> all;
  for (model::LayerId id = 0; id < static_cast<model::LayerId>(graph.layers().size()); ++id) {
    if (!std::holds_alternative<model::Conv>(graph.layer(id).kind)) continue;
    all.push_back({id, engine::conv_shape(graph, id, options.grain), {}});
  }
  const auto first = [&](const ConvProfile& p) { return graph.layer(p.layer).inputs[0] == 0; };
  Profiler profiler(options, known);
  for (const ConvProfile& p : all) profiler.expect(p, first(p));
  for (ConvProfile& p : all) profiler.fill(p, first(p));
  profiler.finish();
  known.save();
  return all;
}

std::string describe(const std::vector<ConvProfile>& profile, const model::Graph& graph) {
  std::string text = fmt::format("{:<24} {:<28} {:<16}", "layer", "convolution", "direction");
  for (const Algorithm algorithm : engine::kAlgorithms) {
    text += fmt::format(" {:>14}", to_string(algorithm));
  }
  text += "   (ms per grain; workspace)\n";
  for (const ConvProfile& p : profile) {
    for (const Direction direction : engine::kDirections) {
      if (p.of(direction).empty()) continue;
      text +=
          fmt::format("{:<24} {:<28} {:<16}", graph.layer(p.layer).name,
                      fmt::format("{}x{}x{} -> {}, {}x{}/{}", p.shape.ic, p.shape.ih, p.shape.iw,
                                  p.shape.oc, p.shape.kh, p.shape.kw, p.shape.stride_h),
                      to_string(direction));
      for (const Algorithm algorithm : engine::kAlgorithms) {
        const auto& timings = p.of(direction);
        const auto found = std::find_if(timings.begin(), timings.end(), [&](const ConvTiming& t) {
          return t.algorithm == algorithm;
        });
        text += found == timings.end()
                    ? fmt::format(" {:>14}", "–")
                    : fmt::format(" {:>14}", fmt::format("{:.2f}; {}", found->time.value * 1e3,
                                                         to_string(found->workspace)));
      }
      text += "\n";
    }
  }
  return text;
}

}  // namespace convoy::plan
