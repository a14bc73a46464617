// Our kernels beside oneDNN's primitives for the same job: nChw8c, one thread, turn by turn.
//
//   bench_kernels [part of a job's name]
//
// Prints per job and shape our time, the bytes that must move over it, and oneDNN's time over ours
// (above 1 we are faster). Each figure is the best of several turns.

#include "convoy/engine/kernels/kernels.hpp"

#include <algorithm>
#include <cstring>
#include <ctime>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include <fmt/format.h>
#include <omp.h>

#include "dnnl.hpp"

namespace convoy::engine {
namespace {

using dnnl::memory;

struct Free {
  void operator()(float* p) const { ::operator delete (p, std::align_val_t{64}); }
};
using Array = std::unique_ptr<float, Free>;

/// Values around zero; written once, so that the pages exist.
Array array(int64_t n) {
  auto* p = static_cast<float*>(
      ::operator new (static_cast<size_t>(n) * sizeof(float), std::align_val_t{64}));
  uint32_t state = 1;
  for (int64_t i = 0; i < n; ++i) {
    state = state * 1664525U + 1013904223U;
    p[i] = static_cast<float>(static_cast<int32_t>(state)) * 0x1p-31F;
  }
  return Array(p);
}

/// Time of this thread: what others do on the machine counts only as far as they take the memory.
double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

double seconds(const std::function<void()>& job, int repeats) {
  const double start = thread_seconds();
  for (int i = 0; i < repeats; ++i) job();
  return (thread_seconds() - start) / repeats;
}

constexpr int kTurns = 15;

struct Bench {
  const Kernels& kernels = select_kernels();
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  std::string filter;

  void compare(const std::string& job, const std::string& shape, double bytes,
               const std::function<void()>& ours, const std::function<void()>& theirs) const {
    const double once = std::max(seconds(ours, 1), seconds(theirs, 1));
    const int repeats = std::clamp(static_cast<int>(2e-3 / once), 1, 1000);
    double best_ours = 1e30;
    double best_theirs = 1e30;
    for (int turn = 0; turn < kTurns; ++turn) {
      best_ours = std::min(best_ours, seconds(ours, repeats));
      best_theirs = std::min(best_theirs, seconds(theirs, repeats));
    }
    fmt::print("{:22} {:>16} {:>10.1f} us {:>7.1f} GB/s {:>7.2f}x\n", job, shape, best_ours * 1e6,
               bytes / best_ours * 1e-9, best_theirs / best_ours);
    std::fflush(stdout);
  }

  bool wanted(const std::string& job) const { return job.find(filter) != std::string::npos; }

  memory wrap(const memory::desc& desc, const Array& data) const {
    return {desc, engine, data.get()};
  }
  void run(const dnnl::primitive& primitive,
           const std::unordered_map<int, memory>& arguments) const {
    primitive.execute(stream, arguments);
  }
};

memory::desc blocked(int64_t n, int64_t c, int64_t h, int64_t w) {
  return {{n, c, h, w}, memory::data_type::f32, memory::format_tag::nChw8c};
}
memory::desc blocked(const Blocked& s) {
  return blocked(s.n, s.channels, s.height, s.width);
}

std::string name(const Blocked& s) {
  return fmt::format("{}x{}x{}x{}", s.n, s.channels, s.height, s.width);
}

constexpr int64_t kGroup = 128 * 1024 / sizeof(float);

/// Both passes over a few channel blocks at a time, as the engine should run them: the second finds
/// the data in the second-level cache if a block fits there.
template <class F>
void for_groups(const Blocked& s, F f) {
  const int64_t group = std::max<int64_t>(1, kGroup / (s.n * s.plane()));
  for (int64_t b = 0; b < s.blocks(); b += group) f(b, std::min(s.blocks(), b + group));
}

void batch_norm(const Bench& bench, const Blocked& s) {
  const auto bytes = static_cast<double>(s.size()) * sizeof(float);
  const Array x = array(s.size());
  const Array y = array(s.size());
  const Array dy = array(s.size());
  const Array dx = array(s.size());
  const Array channel = array(s.channels * 12);
  float* c = channel.get();
  const auto field = [&](int i) { return c + i * s.channels; };
  const Kernels& k = bench.kernels;

  using Flags = dnnl::normalization_flags;
  const auto flags = Flags::use_scale_shift | Flags::fuse_norm_relu;
  const memory::desc data = blocked(s);
  const memory::desc vector({s.channels}, memory::data_type::f32, memory::format_tag::a);
  const memory::desc two({2, s.channels}, memory::data_type::f32, memory::format_tag::nc);
  const auto pair = [&](int i) { return memory(two, bench.engine, field(i)); };
  const auto stats = [&](int i) { return memory(vector, bench.engine, field(i)); };
  const dnnl::batch_normalization_forward::primitive_desc forward_desc(
      {dnnl::prop_kind::forward_training, data, 1e-5F, flags}, bench.engine);
  const dnnl::batch_normalization_forward forward(forward_desc);
  const memory workspace(forward_desc.workspace_desc(), bench.engine);
  const std::unordered_map<int, memory> forward_arguments{
      {DNNL_ARG_SRC, bench.wrap(data, x)}, {DNNL_ARG_DST, bench.wrap(data, y)},
      {DNNL_ARG_MEAN, stats(0)},           {DNNL_ARG_VARIANCE, stats(1)},
      {DNNL_ARG_SCALE_SHIFT, pair(2)},     {DNNL_ARG_WORKSPACE, workspace}};
  bench.compare(
      "bn+relu forward", name(s), 3 * bytes,
      [&] {
        for_groups(s, [&](int64_t b0, int64_t b1) {
          k.bn_statistics(s, b0, b1, x.get(), field(0), field(1));
          k.bn_forward(s, b0, b1, x.get(), field(2), field(3), nullptr, true, y.get());
        });
      },
      [&] { bench.run(forward, forward_arguments); });

  const dnnl::batch_normalization_backward::primitive_desc backward_desc(
      {dnnl::prop_kind::backward, data, data, 1e-5F, flags}, bench.engine, forward_desc);
  const dnnl::batch_normalization_backward backward(backward_desc);
  const std::unordered_map<int, memory> backward_arguments{
      {DNNL_ARG_SRC, bench.wrap(data, x)},
      {DNNL_ARG_DIFF_DST, bench.wrap(data, dy)},
      {DNNL_ARG_DIFF_SRC, bench.wrap(data, dx)},
      {DNNL_ARG_MEAN, stats(0)},
      {DNNL_ARG_VARIANCE, stats(1)},
      {DNNL_ARG_SCALE_SHIFT, pair(2)},
      {DNNL_ARG_DIFF_SCALE_SHIFT, pair(4)},
      {DNNL_ARG_WORKSPACE, workspace}};
  bench.compare(
      "bn+relu backward", name(s), 5 * bytes,
      [&] {
        for_groups(s, [&](int64_t b0, int64_t b1) {
          k.bn_backward_sums(s, b0, b1, x.get(), field(0), field(1), field(2), field(3),
                             Mask::recompute, nullptr, dy.get(), field(4), field(5));
          k.bn_backward(s, b0, b1, x.get(), dy.get(), Mask::recompute, field(2), field(3), field(6),
                        field(7), field(8), dx.get());
        });
      },
      [&] { bench.run(backward, backward_arguments); });
}

void relu(const Bench& bench, const Blocked& s) {
  const auto bytes = static_cast<double>(s.size()) * sizeof(float);
  const Array x = array(s.size());
  const Array y = array(s.size());
  const Array dx = array(s.size());
  const memory::desc data = blocked(s);
  const auto kind = dnnl::algorithm::eltwise_relu;
  const dnnl::eltwise_forward::primitive_desc forward_desc(
      {dnnl::prop_kind::forward_training, kind, data, 0.0F}, bench.engine);
  const dnnl::eltwise_forward forward(forward_desc);
  const dnnl::eltwise_backward backward({{kind, data, data, 0.0F}, bench.engine, forward_desc});
  const std::unordered_map<int, memory> forward_arguments{{DNNL_ARG_SRC, bench.wrap(data, x)},
                                                          {DNNL_ARG_DST, bench.wrap(data, y)}};
  bench.compare(
      "relu forward", name(s), 2 * bytes, [&] { bench.kernels.relu(s.size(), x.get(), y.get()); },
      [&] { bench.run(forward, forward_arguments); });
  const std::unordered_map<int, memory> backward_arguments{
      {DNNL_ARG_SRC, bench.wrap(data, x)},
      {DNNL_ARG_DIFF_DST, bench.wrap(data, y)},
      {DNNL_ARG_DIFF_SRC, bench.wrap(data, dx)}};
  bench.compare(
      "relu backward", name(s), 3 * bytes,
      [&] { bench.kernels.relu_backward(s.size(), x.get(), y.get(), dx.get()); },
      [&] { bench.run(backward, backward_arguments); });
}

/// The bandwidth to compare with: a copy, against memcpy.
void copying(const Bench& bench, const Blocked& s) {
  const Array x = array(s.size());
  const Array y = array(s.size());
  const auto bytes = static_cast<double>(s.size()) * sizeof(float);
  bench.compare(
      "accumulate vs memcpy", name(s), 3 * bytes,
      [&] { bench.kernels.accumulate(s.size(), x.get(), y.get()); },
      [&] { std::memcpy(y.get(), x.get(), static_cast<size_t>(s.size()) * sizeof(float)); });
  bench.compare(
      "dropout vs memcpy", name(s), 2 * bytes,
      [&] { bench.kernels.dropout(s.n, s.image(), 0, 1, 0.5F, x.get(), y.get()); },
      [&] { std::memcpy(y.get(), x.get(), static_cast<size_t>(s.size()) * sizeof(float)); });
}

PoolShape pool(const Blocked& in, int64_t kernel, int64_t stride, int64_t pad) {
  const auto out = [&](int64_t extent) { return (extent + 2 * pad - kernel) / stride + 1; };
  return {in, out(in.height), out(in.width), kernel, kernel, stride, stride, pad, pad, true};
}

void max_pool(const Bench& bench, const PoolShape& s) {
  const Blocked out{s.in.n, s.in.channels, s.out_height, s.out_width};
  const Array x = array(s.in.size());
  const Array y = array(out.size());
  const Array dx = array(s.in.size());
  std::vector<uint8_t> argmax(static_cast<size_t>(out.size()));
  const memory::desc from = blocked(s.in);
  const memory::desc to = blocked(out);
  const auto kind = dnnl::algorithm::pooling_max;
  const memory::dims stride{s.stride_h, s.stride_w};
  const memory::dims kernel{s.kernel_h, s.kernel_w};
  const memory::dims pad{s.pad_h, s.pad_w};
  const dnnl::pooling_forward::primitive_desc forward_desc(
      {dnnl::prop_kind::forward_training, kind, from, to, stride, kernel, pad, pad}, bench.engine);
  const dnnl::pooling_forward forward(forward_desc);
  const dnnl::pooling_backward backward(
      {{kind, from, to, stride, kernel, pad, pad}, bench.engine, forward_desc});
  const memory workspace(forward_desc.workspace_desc(), bench.engine);
  const std::string shape = fmt::format("{} k{}", name(s.in), s.kernel_h);
  const auto bytes = static_cast<double>(s.in.size() * 4 + out.size() * 5);
  const std::unordered_map<int, memory> forward_arguments{{DNNL_ARG_SRC, bench.wrap(from, x)},
                                                          {DNNL_ARG_DST, bench.wrap(to, y)},
                                                          {DNNL_ARG_WORKSPACE, workspace}};
  bench.compare(
      "max pool forward", shape, bytes,
      [&] { bench.kernels.max_pool(s, 0, s.in.n, x.get(), y.get(), argmax.data()); },
      [&] { bench.run(forward, forward_arguments); });
  const std::unordered_map<int, memory> backward_arguments{
      {DNNL_ARG_DIFF_DST, bench.wrap(to, y)},
      {DNNL_ARG_DIFF_SRC, bench.wrap(from, dx)},
      {DNNL_ARG_WORKSPACE, workspace}};
  bench.compare(
      "max pool backward", shape, bytes,
      [&] {
        bench.kernels.max_pool_backward(s, 0, s.in.n, y.get(), argmax.data(), nullptr, dx.get());
      },
      [&] { bench.run(backward, backward_arguments); });
}

void average_pool(const Bench& bench, const PoolShape& s) {
  const Blocked out{s.in.n, s.in.channels, s.out_height, s.out_width};
  const Array x = array(s.in.size());
  const Array y = array(out.size());
  const memory::desc from = blocked(s.in);
  const memory::desc to = blocked(out);
  const auto kind = dnnl::algorithm::pooling_avg_include_padding;
  const memory::dims stride{s.stride_h, s.stride_w};
  const memory::dims kernel{s.kernel_h, s.kernel_w};
  const memory::dims pad{s.pad_h, s.pad_w};
  const dnnl::pooling_forward::primitive_desc forward_desc(
      {dnnl::prop_kind::forward_training, kind, from, to, stride, kernel, pad, pad}, bench.engine);
  const dnnl::pooling_forward forward(forward_desc);
  const dnnl::pooling_backward backward(
      {{kind, from, to, stride, kernel, pad, pad}, bench.engine, forward_desc});
  const bool global = out.plane() == kBlock;
  const std::string shape = fmt::format("{} k{}", name(s.in), s.kernel_h);
  const auto bytes = static_cast<double>(s.in.size() + out.size()) * sizeof(float);
  bench.compare(
      global ? "global pool forward" : "average pool forward", shape, bytes,
      [&] {
        if (global) {
          bench.kernels.global_pool(s.in, 0, s.in.n, x.get(), y.get());
        } else {
          bench.kernels.average_pool(s, 0, s.in.n, x.get(), y.get());
        }
      },
      [&] {
        bench.run(forward,
                  {{DNNL_ARG_SRC, bench.wrap(from, x)}, {DNNL_ARG_DST, bench.wrap(to, y)}});
      });
  bench.compare(
      global ? "global pool backward" : "average pool backward", shape, bytes,
      [&] {
        if (global) {
          bench.kernels.global_pool_backward(s.in, 0, s.in.n, y.get(), x.get());
        } else {
          bench.kernels.average_pool_backward(s, 0, s.in.n, y.get(), x.get());
        }
      },
      [&] {
        bench.run(backward, {{DNNL_ARG_DIFF_DST, bench.wrap(to, y)},
                             {DNNL_ARG_DIFF_SRC, bench.wrap(from, x)}});
      });
}

void lrn(const Bench& bench, const Blocked& s) {
  const Array x = array(s.size());
  const Array y = array(s.size());
  const Array dx = array(s.size());
  const memory::desc data = blocked(s);
  const auto kind = dnnl::algorithm::lrn_across_channels;
  const dnnl::lrn_forward::primitive_desc forward_desc(
      {dnnl::prop_kind::forward_training, kind, data, 5, 1e-4F, 0.75F, 1.0F}, bench.engine);
  const dnnl::lrn_forward forward(forward_desc);
  const dnnl::lrn_backward backward(
      {{kind, data, data, 5, 1e-4F, 0.75F, 1.0F}, bench.engine, forward_desc});
  const memory workspace(forward_desc.workspace_desc(), bench.engine);
  const auto bytes = static_cast<double>(s.size()) * sizeof(float);
  bench.compare(
      "lrn forward", name(s), 2 * bytes,
      [&] { bench.kernels.lrn(s, 0, s.n, 5, 1e-4F, 0.75F, 1.0F, x.get(), y.get()); },
      [&] {
        bench.run(forward, {{DNNL_ARG_SRC, bench.wrap(data, x)},
                            {DNNL_ARG_DST, bench.wrap(data, y)},
                            {DNNL_ARG_WORKSPACE, workspace}});
      });
  bench.compare(
      "lrn backward", name(s), 3 * bytes,
      [&] {
        bench.kernels.lrn_backward(s, 0, s.n, 5, 1e-4F, 0.75F, 1.0F, x.get(), y.get(), dx.get());
      },
      [&] {
        bench.run(backward, {{DNNL_ARG_SRC, bench.wrap(data, x)},
                             {DNNL_ARG_DIFF_DST, bench.wrap(data, y)},
                             {DNNL_ARG_DIFF_SRC, bench.wrap(data, dx)},
                             {DNNL_ARG_WORKSPACE, workspace}});
      });
}

/// Ours gives loss, hits and gradient; oneDNN's the probabilities only.
void softmax(const Bench& bench, int64_t n, int64_t classes) {
  const int64_t columns = round_up(classes, kBlock);
  const Array x = array(n * columns);
  const Array y = array(n * columns);
  std::vector<int32_t> labels(static_cast<size_t>(n), 1);
  const memory::desc data({n, classes}, memory::data_type::f32, memory::dims{columns, 1});
  const dnnl::softmax_forward forward({{dnnl::prop_kind::forward_training, data, 1}, bench.engine});
  double loss = 0;
  int64_t correct = 0;
  bench.compare(
      "softmax", fmt::format("{}x{}", n, classes),
      2 * static_cast<double>(n * classes) * sizeof(float),
      [&] {
        bench.kernels.softmax_cross_entropy(n, classes, 0, 1, x.get(), labels.data(), y.get(),
                                            &loss, &correct);
      },
      [&] {
        bench.run(forward,
                  {{DNNL_ARG_SRC, bench.wrap(data, x)}, {DNNL_ARG_DST, bench.wrap(data, y)}});
      });
}

void run_all(const Bench& bench) {
  const std::vector<Blocked> shapes{{16, 64, 112, 112}, {16, 256, 56, 56}, {16, 64, 56, 56},
                                    {16, 512, 28, 28},  {16, 2048, 7, 7},  {32, 16, 32, 32},
                                    {32, 32, 16, 16},   {32, 64, 8, 8}};
  for (const Blocked& s : shapes) {
    if (bench.wanted("bn")) batch_norm(bench, s);
    if (bench.wanted("relu")) relu(bench, s);
    if (bench.wanted("copy")) copying(bench, s);
  }
  if (bench.wanted("max")) {
    max_pool(bench, pool({16, 64, 112, 112}, 3, 2, 1));
    max_pool(bench, pool({8, 64, 224, 224}, 2, 2, 0));
    max_pool(bench, pool({16, 512, 28, 28}, 2, 2, 0));
    max_pool(bench, pool({32, 8, 28, 28}, 2, 2, 0));
    max_pool(bench, pool({32, 24, 12, 12}, 2, 2, 0));
    max_pool(bench, pool({16, 96, 55, 55}, 3, 2, 0));
  }
  if (bench.wanted("average")) {
    average_pool(bench, pool({16, 2048, 7, 7}, 7, 1, 0));
    average_pool(bench, pool({32, 64, 8, 8}, 8, 1, 0));
    average_pool(bench, pool({16, 256, 56, 56}, 2, 2, 0));
    average_pool(bench, pool({16, 256, 28, 28}, 3, 1, 1));
  }
  if (bench.wanted("lrn")) lrn(bench, {16, 96, 27, 27});
  if (bench.wanted("softmax")) {
    softmax(bench, 16, 1000);
    softmax(bench, 32, 10);
  }
}

}  // namespace
}  // namespace convoy::engine

int main(int argc, char** argv) {
  omp_set_num_threads(1);
  convoy::engine::Bench bench;
  if (argc > 1) bench.filter = argv[1];
  fmt::print("{:22} {:>16} {:>13} {:>12} {:>8}\n", "job", "shape", "ours", "", "oneDNN");
  convoy::engine::run_all(bench);
  return 0;
}
