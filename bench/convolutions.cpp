// Every convolution of some networks by every algorithm, beside oneDNN's direct kernel, in three
// directions: direct-equivalent GFLOP/s on one core, and the error against the definition in double
// precision. Arguments: networks of the zoo; none: vgg-a and resnet-50. With --errors first, the
// table of errors instead.

#include <map>

#include <dnnl.hpp>
#include <omp.h>

#include "convoy/engine/conv_trial.hpp"
#include "convoy/model/zoo.hpp"

#include "bench/beside.hpp"

namespace {

using convoy::bench::Buffer;
using convoy::engine::Algorithm;
using convoy::engine::ConvShape;
using convoy::engine::ConvTrial;
using convoy::engine::Direction;
using dnnl::memory;
using Tag = memory::format_tag;

constexpr int64_t kImages = 16;
constexpr int64_t kErrorSamples = 500;

struct Layer {
  std::string name;
  ConvShape shape;
};

std::string words(const ConvShape& s) {
  std::string text = std::to_string(s.ic) + "×" + std::to_string(s.ih) + " → " +
                     std::to_string(s.oc) + ", " + std::to_string(s.kh) + "×" +
                     std::to_string(s.kw);
  if (s.stride_h > 1) text += "/" + std::to_string(s.stride_h);
  if (s.groups > 1) text += ", " + std::to_string(s.groups) + " groups";
  return text;
}

/// The different convolutions of a network, named by the first layer that does them.
std::vector<Layer> layers_of(const std::string& net) {
  const convoy::model::Graph graph = convoy::model::build(net);
  std::map<std::string, bool> seen;
  std::vector<Layer> all;
  for (convoy::model::LayerId id = 0;
       id < static_cast<convoy::model::LayerId>(graph.layers().size()); ++id) {
    if (!std::holds_alternative<convoy::model::Conv>(graph.layer(id).kind)) continue;
    const ConvShape s = convoy::engine::conv_shape(graph, id, kImages);
    if (seen.try_emplace(words(s), true).second) all.push_back({graph.layer(id).name, s});
  }
  return all;
}

/// oneDNN's three directions, activations in the layouts that we use, too.
class Rival {
 public:
  explicit Rival(const ConvShape& s)
      : stream_(engine_),
        x_(s.n * (s.ic + 8) * s.ih * s.iw),
        y_(s.n * (s.oc + 8) * s.oh * s.ow),
        w_((s.oc + 8) * (s.ic / s.groups + 8) * s.kh * s.kw) {
    const auto desc = [](const memory::dims& dims, Tag tag) {
      return memory::desc(dims, memory::data_type::f32, tag);
    };
    const memory::desc xd = desc({s.n, s.ic, s.ih, s.iw}, s.plain_input ? Tag::nchw : Tag::nChw8c);
    const memory::desc yd = desc({s.n, s.oc, s.oh, s.ow}, Tag::nChw8c);
    const memory::desc any =
        s.groups > 1 ? desc({s.groups, s.oc / s.groups, s.ic / s.groups, s.kh, s.kw}, Tag::any)
                     : desc({s.oc, s.ic, s.kh, s.kw}, Tag::any);
    const memory::dims strides{s.stride_h, s.stride_w};
    const memory::dims dilates{s.dilation_h - 1, s.dilation_w - 1};
    const memory::dims pads{s.pad_h, s.pad_w};
    constexpr auto kDirect = dnnl::algorithm::convolution_direct;
    const dnnl::convolution_forward::primitive_desc forward(
        {dnnl::prop_kind::forward_training, kDirect, xd, any, yd, strides, dilates, pads, pads},
        engine_);
    const dnnl::convolution_backward_data::primitive_desc data(
        {kDirect, xd, any, yd, strides, dilates, pads, pads}, engine_, forward);
    const dnnl::convolution_backward_weights::primitive_desc weights(
        {kDirect, xd, any, yd, strides, dilates, pads, pads}, engine_, forward);
    const memory xm(xd, engine_, x_.get());
    const memory ym(yd, engine_, y_.get());
    const auto wm = [&](const memory::desc& d) { return memory(d, engine_, w_.get()); };
    calls_ = {
        {dnnl::convolution_forward(forward),
         {{DNNL_ARG_SRC, xm}, {DNNL_ARG_WEIGHTS, wm(forward.weights_desc())}, {DNNL_ARG_DST, ym}}},
        {dnnl::convolution_backward_data(data),
         {{DNNL_ARG_DIFF_DST, ym},
          {DNNL_ARG_WEIGHTS, wm(data.weights_desc())},
          {DNNL_ARG_DIFF_SRC, xm}}},
        {dnnl::convolution_backward_weights(weights),
         {{DNNL_ARG_SRC, xm},
          {DNNL_ARG_DIFF_DST, ym},
          {DNNL_ARG_DIFF_WEIGHTS, wm(weights.diff_weights_desc())}}}};
  }
  void run(Direction direction) {
    Call& call = calls_[static_cast<size_t>(direction)];
    call.primitive.execute(stream_, call.arguments);
    stream_.wait();
  }

 private:
  struct Call {
    dnnl::primitive primitive;
    std::unordered_map<int, memory> arguments;
  };
  dnnl::engine engine_{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream_;
  Buffer x_, y_, w_;
  std::vector<Call> calls_;
};

bool possible(const ConvShape& s, Algorithm algorithm, Direction direction) {
  if (s.plain_input && direction == Direction::backward_data) return false;
  return convoy::engine::obstacle(convoy::engine::select_kernels(), s, algorithm, direction)
      .empty();
}

convoy::engine::ConvAlgorithms only(Algorithm algorithm, Direction direction) {
  convoy::engine::ConvAlgorithms algorithms;
  algorithms.of(direction) = algorithm;
  return algorithms;
}

/// The fastest algorithm of each direction beside oneDNN's.
void speeds(const Layer& layer) {
  const ConvShape& s = layer.shape;
  const double flops = convoy::engine::conv_work(s).value;
  Rival rival(s);
  std::string row = "| " + layer.name + " | " + words(s) + " |";
  for (const Direction direction : convoy::engine::kDirections) {
    std::string best;
    convoy::bench::Pair times{1e30, 0};
    for (const Algorithm algorithm : convoy::engine::kAlgorithms) {
      if (!possible(s, algorithm, direction)) continue;
      ConvTrial trial(s, only(algorithm, direction));
      trial.fill(1);
      const auto pair = convoy::bench::measure([&] { trial.run(direction); },
                                               [&] { rival.run(direction); }, 0.2, 2);
      if (best.empty() || pair.ours * times.theirs < times.ours * pair.theirs) {
        times = pair;
        best = to_string(algorithm);
      }
    }
    char cell[160] = " – |";
    if (!best.empty()) {
      std::snprintf(cell, sizeof cell, " %.0f / %.0f = **%.2f** %s |", flops / times.ours / 1e9,
                    flops / times.theirs / 1e9, times.theirs / times.ours, best.c_str());
    }
    row += cell;
  }
  std::printf("%s\n", row.c_str());
  std::fflush(stdout);
}

/// Largest and mean error of each algorithm and direction.
void errors(const Layer& layer) {
  ConvShape s = layer.shape;
  s.n = 4;
  for (const Algorithm algorithm : convoy::engine::kAlgorithms) {
    std::string row = "| " + layer.name + " | " + words(s) + " | " + to_string(algorithm) + " |";
    bool any = false;
    for (const Direction direction : convoy::engine::kDirections) {
      char cell[80] = " – |";
      if (possible(s, algorithm, direction)) {
        any = true;
        ConvTrial trial(s, only(algorithm, direction));
        trial.fill(1);
        trial.run(direction);
        const ConvTrial::Error error = trial.error(direction, kErrorSamples);
        std::snprintf(cell, sizeof cell, " %.1e, %.1e |", error.largest, error.mean);
      }
      row += cell;
    }
    if (any) std::printf("%s\n", row.c_str());
    std::fflush(stdout);
  }
}

}  // namespace

int main(int count, char** arguments) {
  omp_set_num_threads(1);
  std::vector<std::string> nets(arguments + 1, arguments + count);
  const bool show_errors = !nets.empty() && nets.front() == "--errors";
  if (show_errors) nets.erase(nets.begin());
  if (nets.empty()) nets = {"vgg-a", "resnet-50"};
  std::printf("FMA peak of a core: %.1f GFLOP/s\n\n", convoy::bench::peak_gflops());
  for (const std::string& net : nets) {
    if (show_errors) {
      std::printf("| %s | convolution | algorithm | forward | backward-data | backward-weights |\n",
                  net.c_str());
      std::printf("|---|---|---|---|---|---|\n");
    } else {
      std::printf("| %s | convolution | forward | backward-data | backward-weights |\n",
                  net.c_str());
      std::printf("|---|---|---|---|---|\n");
    }
    for (const Layer& layer : layers_of(net)) {
      show_errors ? errors(layer) : speeds(layer);
    }
    std::printf("\n");
  }
}
