// bench_conv_weights [FILTER]: the gradient of convolution weights, our kernel beside oneDNN's on
// one thread, for every distinct layer of the zoo's networks (of those whose name has FILTER).
// The ratio is oneDNN's time over ours: above 1 ours is faster.

#include <unordered_map>

#include <dnnl.hpp>
#include <fmt/format.h>
#include <omp.h>

#include "convoy/engine/kernels/kernels.hpp"

#include "bench/beside.hpp"

namespace {

using convoy::bench::Buffer;
using convoy::engine::ConvShape;
using convoy::engine::round_up;

struct Layer {
  std::string name;
  ConvShape shape;
};

Layer layer(const char* net, int64_t n, int64_t ic, int64_t oc, int64_t size, int64_t kernel,
            int64_t stride, int64_t pad) {
  ConvShape s;
  s.n = n;
  s.ic = ic;
  s.oc = oc;
  s.ih = s.iw = size;
  s.kh = s.kw = kernel;
  s.stride_h = s.stride_w = stride;
  s.pad_h = s.pad_w = pad;
  s.oh = s.ow = (size + 2 * pad - kernel) / stride + 1;
  s.plain_input = ic <= 3;
  return {fmt::format("{} {}x{} {}->{} {}x{}/{}", net, size, size, ic, oc, kernel, kernel, stride),
          s};
}

std::vector<Layer> layers() {
  std::vector<Layer> all = {layer("resnet-50", 16, 3, 64, 224, 7, 2, 3)};
  int64_t ic = 64;
  for (int64_t stage = 0, size = 56; stage < 4; ++stage, size /= 2) {
    const int64_t mid = int64_t{64} << stage;
    const int64_t in = stage == 0 ? size : size * 2;
    all.push_back(layer("resnet-50", 16, ic, mid, in, 1, 1, 0));
    all.push_back(layer("resnet-50", 16, mid, mid, in, 3, stage == 0 ? 1 : 2, 1));
    if (stage > 0) all.push_back(layer("resnet-50", 16, mid, mid, size, 3, 1, 1));
    all.push_back(layer("resnet-50", 16, mid, 4 * mid, size, 1, 1, 0));
    if (stage > 0) all.push_back(layer("resnet-50", 16, ic, 4 * mid, in, 1, 2, 0));
    all.push_back(layer("resnet-50", 16, 4 * mid, mid, size, 1, 1, 0));
    ic = 4 * mid;
  }
  const int64_t vgg[][3] = {{3, 64, 224},   {64, 128, 112}, {128, 256, 56}, {256, 256, 56},
                            {256, 512, 28}, {512, 512, 28}, {512, 512, 14}};
  for (const auto& [in, out, size] : vgg) all.push_back(layer("vgg-a", 16, in, out, size, 3, 1, 1));
  all.push_back(layer("alexnet", 32, 3, 64, 224, 11, 4, 2));
  all.push_back(layer("alexnet", 32, 64, 192, 27, 5, 1, 2));
  all.push_back(layer("alexnet", 32, 192, 384, 13, 3, 1, 1));
  all.push_back(layer("alexnet", 32, 384, 256, 13, 3, 1, 1));
  all.push_back(layer("alexnet", 32, 256, 256, 13, 3, 1, 1));
  all.push_back(layer("resnet-20", 32, 3, 16, 32, 3, 1, 1));
  all.push_back(layer("resnet-20", 32, 16, 16, 32, 3, 1, 1));
  all.push_back(layer("resnet-20", 32, 16, 32, 32, 3, 2, 1));
  all.push_back(layer("resnet-20", 32, 32, 32, 16, 3, 1, 1));
  all.push_back(layer("resnet-20", 32, 16, 32, 32, 1, 2, 0));
  all.push_back(layer("resnet-20", 32, 32, 64, 16, 3, 2, 1));
  all.push_back(layer("resnet-20", 32, 64, 64, 8, 3, 1, 1));
  all.push_back(layer("resnet-20", 32, 32, 64, 16, 1, 2, 0));
  all.push_back(layer("lenet", 32, 1, 20, 28, 5, 1, 0));
  all.push_back(layer("lenet", 32, 20, 50, 12, 5, 1, 0));
  return all;
}

/// oneDNN's primitive over the same arrays; the layouts are those of our kernels.
class Rival {
 public:
  Rival(const ConvShape& s, float* x, float* dy, float* dw)
      : engine_(dnnl::engine::kind::cpu, 0), stream_(engine_) {
    using dnnl::memory;
    using Tag = memory::format_tag;
    const auto type = memory::data_type::f32;
    const memory::desc x_desc({s.n, s.ic, s.ih, s.iw}, type,
                              s.plain_input ? Tag::nchw : Tag::nChw8c);
    const memory::desc dy_desc({s.n, s.oc, s.oh, s.ow}, type, Tag::nChw8c);
    const memory::desc dw_desc({s.oc, s.ic, s.kh, s.kw}, type,
                               s.plain_input ? Tag::Ohwi8o : Tag::OIhw8i8o);
    const memory::dims strides{s.stride_h, s.stride_w};
    const memory::dims pads{s.pad_h, s.pad_w};
    const dnnl::convolution_forward::primitive_desc forward(
        {dnnl::prop_kind::forward_training, dnnl::algorithm::convolution_direct, x_desc, dw_desc,
         dy_desc, strides, pads, pads},
        engine_);
    const dnnl::convolution_backward_weights::primitive_desc backward(
        {dnnl::algorithm::convolution_direct, x_desc, dw_desc, dy_desc, strides, pads, pads},
        engine_, forward);
    name_ = backward.impl_info_str();
    primitive_ = dnnl::convolution_backward_weights(backward);
    arguments_ = {{DNNL_ARG_SRC, memory(x_desc, engine_, x)},
                  {DNNL_ARG_DIFF_DST, memory(dy_desc, engine_, dy)},
                  {DNNL_ARG_DIFF_WEIGHTS, memory(dw_desc, engine_, dw)}};
  }
  void run() {
    primitive_.execute(stream_, arguments_);
    stream_.wait();
  }
  const std::string& name() const { return name_; }

 private:
  dnnl::engine engine_;
  dnnl::stream stream_;
  dnnl::primitive primitive_;
  std::unordered_map<int, dnnl::memory> arguments_;
  std::string name_;
};

void compare(const Layer& layer) {
  const ConvShape& s = layer.shape;
  const auto& kernels = convoy::engine::select_kernels();
  const int64_t ic = s.plain_input ? s.ic : round_up(s.ic, 8);
  const int64_t oc = round_up(s.oc, 8);
  const Buffer x(s.n * ic * s.ih * s.iw);
  const Buffer dy(s.n * oc * s.oh * s.ow);
  const Buffer dw(oc * ic * s.kh * s.kw);
  const Buffer scratch(kernels.conv_backward_weights_scratch(s) + 1);
  Rival rival(s, x.get(), dy.get(), dw.get());
  const auto times = convoy::bench::measure(
      [&] {
        kernels.conv_backward_weights(s, 0, oc / 8, x.get(), dy.get(), dw.get(), scratch.get());
      },
      [&] { rival.run(); });
  const double flops = 2.0 * static_cast<double>(s.n * s.ic * s.oc * s.oh * s.ow * s.kh * s.kw);
  convoy::bench::print_row(fmt::format("{} ({})", layer.name, rival.name()), flops, times);
}

}  // namespace

int main(int argc, char** argv) {
  omp_set_num_threads(1);
  std::printf("peak of a core: %.1f GF/s\n%-44s %19s %25s\n", convoy::bench::peak_gflops(), "layer",
              "ours", "oneDNN");
  for (const Layer& layer : layers()) {
    if (argc < 2 || layer.name.find(argv[1]) != std::string::npos) compare(layer);
  }
}
