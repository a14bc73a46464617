#include "convoy/plan/profile.hpp"

#include <algorithm>
#include <cstdlib>
#include <map>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "convoy/base/error.hpp"
#include "convoy/base/file.hpp"
#include "convoy/base/threads.hpp"
#include "convoy/base/version.hpp"
#include "convoy/engine/conv_trial.hpp"
#include "convoy/engine/crew.hpp"

namespace convoy::plan {
namespace {

using engine::Algorithm;
using engine::ConvShape;
using engine::Direction;

constexpr Seconds kLongEnough{0.1};
constexpr Seconds kTooLong{0.5};
constexpr int kLeastRepeats = 3;
constexpr int kMostRepeats = 25;

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

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

/// The directions that the algorithm can do; the others run direct.
engine::ConvAlgorithms possible(const ConvShape& s, Algorithm algorithm) {
  engine::ConvAlgorithms algorithms;
  for (const Direction direction : engine::kDirections) {
    if (engine::obstacle(engine::select_kernels(), s, algorithm, direction).empty()) {
      algorithms.of(direction) = algorithm;
    }
  }
  return algorithms;
}

/// Median seconds of `work`.
double time_of(const std::function<void()>& work) {
  const Seconds start = now();
  work();
  // What takes long is not disturbed by cold caches.
  if (const Seconds first = now() - start; first >= kTooLong) return first.value;
  std::vector<double> times;
  const Seconds begin = now();
  for (int i = 0; i < kMostRepeats; ++i) {
    const Seconds spent = now() - begin;
    if (spent >= kTooLong || (i >= kLeastRepeats && spent >= kLongEnough)) break;
    const Seconds before = now();
    work();
    times.push_back((now() - before).value);
  }
  return median(times);
}

/// Every lane measures, all at the same time, as they will work; their mean counts.
Measured measure(const ConvShape& s, Algorithm algorithm, const ProfileOptions& options) {
  std::vector<Measured> of_lane(static_cast<size_t>(options.lanes));
  engine::Crew crew(options.lanes, options.cores);
  crew.run([&](int lane) {
    engine::ConvTrial trial(s, possible(s, algorithm), options.threads_per_lane);
    trial.fill(1);
    Measured& m = of_lane[static_cast<size_t>(lane)];
    for (const Direction direction : engine::kDirections) {
      if (trial.kernel(direction).empty()) continue;
      m.directions[static_cast<size_t>(direction)] = time_of([&] { trial.run(direction); });
    }
    m.preparation = time_of([&] { trial.prepare(); });
  });
  Measured mean;
  for (const Measured& m : of_lane) {
    for (size_t d = 0; d < 3; ++d) mean.directions[d] += m.directions[d] / options.lanes;
    mean.preparation += m.preparation / options.lanes;
  }
  return mean;
}

// ---- The cache ---------------------------------------------------------------------------------

class Cache {
 public:
  explicit Cache(const ProfileOptions& options)
      : path_(options.cache),
        layout_(fmt::format("{} lanes of {}", options.lanes, options.threads_per_lane)),
        head_{{"version", version()}, {"cpu", cpu_name()}, {"isa", engine::select_kernels().isa}} {
    if (path_.empty() || !std::filesystem::exists(path_)) return;
    try {
      const std::vector<uint8_t> bytes = read_file(path_);
      const nlohmann::json file = nlohmann::json::parse(bytes.begin(), bytes.end());
      if (file.at("head") != head_) {
        if (options.note) {
          options.note(
              fmt::format("profile {} is of another CPU or version: ignored", path_.string()));
        }
        return;
      }
      entries_ = file.at("entries");
    } catch (const std::exception& error) {
      if (options.note) {
        options.note(
            fmt::format("profile {} cannot be read ({}): ignored", path_.string(), error.what()));
      }
    }
  }

  std::string key(const ConvShape& s, Algorithm algorithm) const {
    return fmt::format("{}, {}, {}", to_string(algorithm), shape_key(s), layout_);
  }

  bool has(const std::string& key) const { return entries_.contains(key); }
  Measured get(const std::string& key) const {
    const std::vector<double> values = entries_.at(key);
    Measured m;
    std::copy_n(values.begin(), 3, m.directions.begin());
    m.preparation = values.at(3);
    return m;
  }
  void put(const std::string& key, const Measured& m) {
    entries_[key] = {m.directions[0], m.directions[1], m.directions[2], m.preparation};
    changed_ = true;
  }
  void save() const {
    if (path_.empty() || !changed_) return;
    std::error_code ignored;
    std::filesystem::create_directories(path_.parent_path(), ignored);
    try {
      write_atomically(path_, nlohmann::json{{"head", head_}, {"entries", entries_}}.dump(1));
    } catch (const Error&) {
      // Only the time to measure again is lost.
    }
  }

 private:
  std::filesystem::path path_;
  std::string layout_;
  nlohmann::json head_;
  nlohmann::json entries_ = nlohmann::json::object();
  bool changed_ = false;
};

}  // namespace

std::filesystem::path cache_folder() {
  const auto variable = [](const char* name) -> std::string {
    const char* value = std::getenv(name);
    return value == nullptr ? "" : value;
  };
  if (const std::string xdg = variable("XDG_CACHE_HOME"); !xdg.empty()) {
    return std::filesystem::path(xdg) / "convoy";
  }
  const std::string home = variable("HOME");
  return home.empty() ? std::filesystem::path() : std::filesystem::path(home) / ".cache/convoy";
}

std::vector<ConvProfile> profile_convolutions(const model::Graph& graph,
                                              const ProfileOptions& options) {
  struct Wanted {
    ConvShape shape;
    Algorithm algorithm;
  };
  std::map<std::string, Wanted> missing;
  Cache cache(options);
  const auto& kernels = engine::select_kernels();
  std::vector<ConvProfile> all;
  for (model::LayerId id = 0; id < static_cast<model::LayerId>(graph.layers().size()); ++id) {
    if (!std::holds_alternative<model::Conv>(graph.layer(id).kind)) continue;
    ConvProfile profile;
    profile.layer = id;
    profile.shape = engine::conv_shape(graph, id, options.grain);
    for (const Algorithm algorithm : engine::kAlgorithms) {
      if (options.exact && algorithm == Algorithm::winograd4) continue;
      for (const Direction direction : engine::kDirections) {
        const bool first = graph.layer(id).inputs[0] == 0;
        if (first && direction == Direction::backward_data) continue;
        if (!engine::obstacle(kernels, profile.shape, algorithm, direction).empty()) continue;
        const engine::ConvCost cost = engine::conv_cost(kernels, profile.shape, algorithm,
                                                        direction, options.threads_per_lane);
        profile.of(direction).push_back({algorithm, {}, {}, cost.workspace, cost.kept});
        const std::string key = cache.key(profile.shape, algorithm);
        if (!cache.has(key)) missing.try_emplace(key, Wanted{profile.shape, algorithm});
      }
    }
    all.push_back(std::move(profile));
  }

  int done = 0;
  for (const auto& [key, wanted] : missing) {
    if (options.progress) options.progress(done, static_cast<int>(missing.size()), key);
    cache.put(key, measure(wanted.shape, wanted.algorithm, options));
    ++done;
  }
  cache.save();

  for (ConvProfile& profile : all) {
    for (const Direction direction : engine::kDirections) {
      // Preparing is measured for forward and backward-data together.
      for (ConvTiming& timing : profile.of(direction)) {
        const Measured m = cache.get(cache.key(profile.shape, timing.algorithm));
        timing.time = {m.directions[static_cast<size_t>(direction)]};
        if (direction != Direction::backward_weights) timing.preparation = {m.preparation / 2};
      }
    }
  }
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
