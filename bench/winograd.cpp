// Winograd's convolution beside oneDNN's direct one, by layer and direction; direct-equivalent
// GFLOP/s, one thread. Arguments: parts of layer names to run; none: all.

#include <dnnl.hpp>

#include "convoy/engine/kernels/kernels.hpp"

#include "bench/beside.hpp"

namespace {

using convoy::bench::Buffer;
using convoy::engine::ConvShape;
using convoy::engine::Winograd;
using dnnl::memory;
using Tag = memory::format_tag;

struct Layer {
  std::string name;
  ConvShape shape;
};

Layer layer(const std::string& net, int64_t n, int64_t ic, int64_t oc, int64_t size) {
  ConvShape s;
  s.n = n, s.ic = ic, s.oc = oc;
  s.ih = s.iw = s.oh = s.ow = size;
  s.kh = s.kw = 3;
  s.pad_h = s.pad_w = 1;
  return {net + " " + std::to_string(ic) + "x" + std::to_string(size) + " -> " + std::to_string(oc),
          s};
}

std::vector<Layer> layers() {
  return {layer("vgg-a", 16, 64, 128, 112),    layer("vgg-a", 16, 128, 256, 56),
          layer("vgg-a", 16, 256, 256, 56),    layer("vgg-a", 16, 256, 512, 28),
          layer("vgg-a", 16, 512, 512, 28),    layer("vgg-a", 16, 512, 512, 14),
          layer("resnet-50", 8, 64, 64, 56),   layer("resnet-50", 8, 128, 128, 28),
          layer("resnet-50", 8, 256, 256, 14), layer("resnet-50", 8, 512, 512, 7),
          layer("alexnet", 32, 192, 384, 13),  layer("alexnet", 32, 384, 256, 13),
          layer("alexnet", 32, 256, 256, 13),  layer("resnet-20", 32, 16, 16, 32),
          layer("resnet-20", 32, 32, 32, 16),  layer("resnet-20", 32, 64, 64, 8)};
}

/// oneDNN's three directions over the same arrays.
class Rival {
 public:
  Rival(const ConvShape& s, float* x, float* w, float* y) : stream_(engine_) {
    const auto desc = [](const memory::dims& dims, Tag tag) {
      return memory::desc(dims, memory::data_type::f32, tag);
    };
    const memory::desc xd = desc({s.n, s.ic, s.ih, s.iw}, Tag::nChw8c);
    const memory::desc yd = desc({s.n, s.oc, s.oh, s.ow}, Tag::nChw8c);
    const memory::desc wd = desc({s.oc, s.ic, s.kh, s.kw}, Tag::OIhw8i8o);
    const memory::desc td = desc({s.oc, s.ic, s.kh, s.kw}, Tag::OIhw8o8i);
    const memory::dims strides{1, 1};
    const memory::dims pads{s.pad_h, s.pad_w};
    constexpr auto kDirect = dnnl::algorithm::convolution_direct;
    const dnnl::convolution_forward::primitive_desc forward(
        {dnnl::prop_kind::forward_training, kDirect, xd, wd, yd, strides, pads, pads}, engine_);
    const dnnl::convolution_backward_data::primitive_desc data(
        {kDirect, xd, td, yd, strides, pads, pads}, engine_, forward);
    const dnnl::convolution_backward_weights::primitive_desc weights(
        {kDirect, xd, wd, yd, strides, pads, pads}, engine_, forward);
    const memory xm(xd, engine_, x);
    const memory ym(yd, engine_, y);
    calls_ = {
        {dnnl::convolution_forward(forward),
         {{DNNL_ARG_SRC, xm}, {DNNL_ARG_WEIGHTS, memory(wd, engine_, w)}, {DNNL_ARG_DST, ym}}},
        {dnnl::convolution_backward_data(data),
         {{DNNL_ARG_DIFF_DST, ym},
          {DNNL_ARG_WEIGHTS, memory(td, engine_, w)},
          {DNNL_ARG_DIFF_SRC, xm}}},
        {dnnl::convolution_backward_weights(weights),
         {{DNNL_ARG_SRC, xm},
          {DNNL_ARG_DIFF_DST, ym},
          {DNNL_ARG_DIFF_WEIGHTS, memory(wd, engine_, w)}}}};
  }
  void run(size_t direction) {
    calls_[direction].primitive.execute(stream_, calls_[direction].arguments);
    stream_.wait();
  }

 private:
  struct Call {
    dnnl::primitive primitive;
    std::unordered_map<int, memory> arguments;
  };
  dnnl::engine engine_{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream_;
  std::vector<Call> calls_;
};

void compare(const Layer& layer, const Winograd& w, const std::string& name) {
  const ConvShape& s = layer.shape;
  const ConvShape t = convoy::engine::backward_shape(s);
  const Buffer x(s.n * s.ic * s.ih * s.iw);
  const Buffer y(s.n * s.oc * s.oh * s.ow);
  const Buffer weights(s.ic * s.oc * 9);
  const Buffer u(w.kernel_size(s));
  const Buffer turned(w.kernel_size(t));
  const int64_t blocks = (s.oc + 7) / 8;
  const Buffer scratch(std::max(
      {w.forward_scratch(s), w.forward_scratch(t), w.backward_weights_scratch(s, blocks)}));
  w.kernel(s, false, 0, blocks, weights.get(), u.get());
  w.kernel(s, true, 0, (s.ic + 7) / 8, weights.get(), turned.get());
  Rival rival(s, x.get(), weights.get(), y.get());
  const double flops = 2.0 * 9 * static_cast<double>(s.n * s.ic * s.oc * s.oh * s.ow);
  const auto row = [&](const char* what, size_t direction, const std::function<void()>& ours) {
    print_row(name + " " + layer.name + " " + what, flops,
              convoy::bench::measure(ours, [&] { rival.run(direction); }));
  };
  row("forward", 0, [&] {
    w.forward(s, 0, w.tiles(s), x.get(), u.get(), nullptr, false, y.get(), scratch.get());
  });
  row("data", 1, [&] {
    w.forward(t, 0, w.tiles(t), y.get(), turned.get(), nullptr, false, x.get(), scratch.get());
  });
  row("weights", 2,
      [&] { w.backward_weights(s, 0, blocks, x.get(), y.get(), weights.get(), scratch.get()); });
  const auto preparing = convoy::bench::measure(
      [&] { w.kernel(s, false, 0, blocks, weights.get(), u.get()); },
      [&] { w.kernel(s, true, 0, (s.ic + 7) / 8, weights.get(), turned.get()); }, 0.02);
  std::printf("%-44s %8.2f ms %21.2f ms turned\n", "  preparing the kernel", preparing.ours * 1e3,
              preparing.theirs * 1e3);
}

}  // namespace

int main(int count, char** arguments) {
  std::printf("peak %.1f GFLOP/s\n%-44s %25s %25s  ratio\n", convoy::bench::peak_gflops(), "",
              "winograd", "oneDNN direct");
  const auto& kernels = convoy::engine::select_kernels();
  for (const Layer& l : layers()) {
    bool wanted = count == 1;
    for (int i = 1; i < count; ++i) wanted |= l.name.find(arguments[i]) != std::string::npos;
    if (!wanted) continue;
    compare(l, kernels.winograd4, "F4");
  }
}
