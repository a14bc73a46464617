// Element-wise layers: activations, dropout, addition, concatenation, flattening.

#include <algorithm>

#include "convoy/base/error.hpp"
#include "convoy/base/random.hpp"
#include "convoy/engine/dnnl_call.hpp"

namespace convoy::engine {
namespace {

std::string own(const Builder& b) {
  return std::string("own ") + b.kernels.isa;
}

/// Defines the value of a layer that is stored as its first input.
Value& like_input(Builder& b, model::LayerId id, model::LayerId from) {
  Value& out = b.value(id);
  const Value& in = b.value(from);
  out.stored = in.stored;
  out.wants_gradient = in.wants_gradient;
  return out;
}

/// Calls f(count, offset) on the pieces of n floats, n a multiple of the block.
template <typename F>
void for_floats(int threads, int64_t n, const F& f) {
  for_range(threads, n / kBlock,
            [&](int64_t begin, int64_t end) { f((end - begin) * kBlock, begin * kBlock); });
}

/// Zeroes the channels beyond the last real one.
void zero_padding(const Blocked& s, float* x) {
  const int64_t real = s.channels % kBlock;
  if (real == 0) return;
  for (int64_t n = 0; n < s.n; ++n) {
    float* last = x + (n + 1) * s.image() - s.plane();
    for (int64_t p = 0; p < s.plane(); p += kBlock) {
      std::fill(last + p + real, last + p + kBlock, 0.0F);
    }
  }
}

// ---- activations -------------------------------------------------------------------------------

struct Eltwise {
  dnnl::algorithm algorithm;
  float alpha = 0, beta = 0;
  bool from_output = true;  ///< the backward pass reads the output instead of the input
};

Eltwise eltwise_of(const model::Activation& activation) {
  using A = dnnl::algorithm;
  switch (activation.kind) {
    case model::ActivationKind::relu:
      return {A::eltwise_relu_use_dst_for_bwd, 0, 0};
    case model::ActivationKind::leaky_relu:
      if (activation.alpha < 0) return {A::eltwise_relu, activation.alpha, 0, false};
      return {A::eltwise_relu_use_dst_for_bwd, activation.alpha, 0};
    case model::ActivationKind::relu6:
      return {A::eltwise_clip_v2_use_dst_for_bwd, 0, 6};
    case model::ActivationKind::elu:
      if (activation.alpha < 0) return {A::eltwise_elu, activation.alpha, 0, false};
      return {A::eltwise_elu_use_dst_for_bwd, activation.alpha, 0};
    case model::ActivationKind::sigmoid:
      return {A::eltwise_logistic_use_dst_for_bwd};
    case model::ActivationKind::tanh:
      return {A::eltwise_tanh_use_dst_for_bwd};
    case model::ActivationKind::gelu:
      return {A::eltwise_gelu_erf, 0, 0, false};
  }
  return {A::eltwise_relu};
}

Backward emit_eltwise(Builder& b, const Node& node, model::LayerId from, const Eltwise& e) {
  Value& out = like_input(b, node.result, from);
  out.buffer = b.new_floats(out.stored.size());
  const dnnl::memory::desc desc = blocked_desc(out.stored);
  const dnnl::eltwise_forward::primitive_desc pd(
      {dnnl::prop_kind::forward_training, e.algorithm, desc, e.alpha, e.beta}, user_scratchpad(),
      cpu_engine());
  emit_primitive(b, node.head, Phase::forward, dnnl::eltwise_forward(pd), pd.scratchpad_desc(),
                 pd.impl_info_str(),
                 {{DNNL_ARG_SRC, desc, desc, Place::at(b.value(from).buffer), false},
                  {DNNL_ARG_DST, desc, desc, Place::at(out.buffer), true}});
  return [&b, node, from, e, desc, pd] {
    const Value& result = b.value(node.result);
    if (!result.wants_gradient) return;
    const dnnl::eltwise_backward::primitive_desc back({e.algorithm, desc, desc, e.alpha, e.beta},
                                                      user_scratchpad(), cpu_engine(), pd);
    const BufferId data = e.from_output ? result.buffer : b.available(from);
    const int argument = e.from_output ? DNNL_ARG_DST : DNNL_ARG_SRC;
    emit_primitive(b, node.head, Phase::backward_data, dnnl::eltwise_backward(back),
                   back.scratchpad_desc(), back.impl_info_str(),
                   {{argument, desc, desc, Place::at(data), false},
                    {DNNL_ARG_DIFF_DST, desc, desc, Place::at(result.gradient), false},
                    {DNNL_ARG_DIFF_SRC, desc, desc, Place::at(result.gradient), true}});
    b.add_gradient(from, result.gradient);
  };
}

Backward emit_relu(Builder& b, const Node& node, model::LayerId from) {
  Value& out = like_input(b, node.result, from);
  out.buffer = b.new_floats(out.stored.size());
  const int64_t size = out.stored.size();
  b.emit(node.head, Phase::forward, own(b), {b.value(from).buffer, out.buffer},
         [=, x = b.value(from).buffer, y = out.buffer, &k = b.kernels,
          threads = b.threads](const LaneMemory& m) -> Bound {
           return [=, &k, px = m.floats(x), py = m.floats(y)](RunState&) {
             for_floats(threads, size, [&](int64_t n, int64_t at) { k.relu(n, px + at, py + at); });
           };
         });
  return [&b, node, from, size] {
    const Value& result = b.value(node.result);
    if (!result.wants_gradient) return;
    const BufferId dy = result.gradient;
    b.emit(
        node.head, Phase::backward_data, own(b), {result.buffer, dy},
        [=, y = result.buffer, &k = b.kernels, threads = b.threads](const LaneMemory& m) -> Bound {
          return [=, &k, py = m.floats(y), pdy = m.floats(dy)](RunState&) {
            for_floats(threads, size, [&](int64_t n, int64_t at) {
              k.relu_backward(n, py + at, pdy + at, pdy + at);
            });
          };
        });
    b.add_gradient(from, dy);
  };
}

}  // namespace

void emit_repack(Builder& b, model::LayerId id, Phase phase, const Blocked& from_shape,
                 BufferId from, const Blocked& to_shape, BufferId to) {
  const BufferId plain =
      b.new_floats(from_shape.n * from_shape.channels * from_shape.height * from_shape.width);
  b.emit(id, phase, own(b), {from, plain, to}, [=, &k = b.kernels](const LaneMemory& m) -> Bound {
    return [=, &k, x = m.floats(from), p = m.floats(plain), y = m.floats(to)](RunState&) {
      k.unblock(from_shape, 0, from_shape.n, x, p);
      k.block(to_shape, 0, to_shape.n, p, y);
    };
  });
}

Backward emit_activation(Builder& b, const Node& node) {
  const model::LayerId from = b.graph.layer(node.head).inputs[0];
  b.blocked(from);
  const auto& activation = std::get<model::Activation>(b.graph.layer(node.head).kind);
  if (activation.kind == model::ActivationKind::relu) return emit_relu(b, node, from);
  return emit_eltwise(b, node, from, eltwise_of(activation));
}

Backward emit_dropout(Builder& b, const Node& node) {
  const model::LayerId from = b.graph.layer(node.head).inputs[0];
  b.blocked(from);
  Value& out = like_input(b, node.result, from);
  out.buffer = b.new_floats(out.stored.size());
  const float rate = std::get<model::Dropout>(b.graph.layer(node.head).kind).rate;
  const auto emit_pass = [&b, node, rate, s = out.stored](Phase phase, BufferId x, BufferId y) {
    b.emit(
        node.head, phase, own(b), {x, y},
        [=, &k = b.kernels, threads = b.threads](const LaneMemory& m) -> Bound {
          return [=, &k, px = m.floats(x), py = m.floats(y)](RunState& run) {
            const GrainRun& g = *run.grain;
            const uint64_t key = stream_key(g.seed, Purpose::dropout, static_cast<uint64_t>(g.step),
                                            static_cast<uint64_t>(node.head));
            const float active = g.training ? rate : 0;
            for_range(threads, s.n, [&](int64_t n0, int64_t n1) {
              const int64_t at = n0 * s.image();
              if (active == 0) {
                std::copy_n(px + at, (n1 - n0) * s.image(), py + at);
              } else {
                k.dropout(n1 - n0, s.image(), g.first_sample + n0, key, active, px + at, py + at);
              }
            });
          };
        });
  };
  emit_pass(Phase::forward, b.value(from).buffer, out.buffer);
  return [&b, node, from, emit_pass] {
    const Value& result = b.value(node.result);
    if (!result.wants_gradient) return;
    const BufferId dx = b.new_floats(result.stored.size());
    emit_pass(Phase::backward_data, result.gradient, dx);
    b.add_gradient(from, dx);
  };
}

Backward emit_add(Builder& b, const Node& node) {
  const std::vector<model::LayerId> inputs = b.graph.layer(node.head).inputs;
  for (const model::LayerId from : inputs) b.blocked(from);
  Value& out = like_input(b, node.result, inputs[0]);
  out.buffer = b.new_floats(out.stored.size());
  out.wants_gradient = std::any_of(inputs.begin(), inputs.end(), [&](model::LayerId from) {
    return b.value(from).wants_gradient;
  });
  const int64_t size = out.stored.size();
  BufferId left = b.value(inputs[0]).buffer;
  for (size_t i = 1; i < inputs.size(); ++i) {
    const bool relu = node.relu && i + 1 == inputs.size();
    b.emit(
        node.head, Phase::forward, own(b), {left, b.value(inputs[i]).buffer, out.buffer},
        [=, right = b.value(inputs[i]).buffer, y = out.buffer, &k = b.kernels,
         threads = b.threads](const LaneMemory& m) -> Bound {
          return [=, &k, pa = m.floats(left), pb = m.floats(right), py = m.floats(y)](RunState&) {
            for_floats(threads, size,
                       [&](int64_t n, int64_t at) { k.add(n, pa + at, pb + at, relu, py + at); });
          };
        });
    left = out.buffer;
  }
  return [&b, node, inputs, size] {
    const Value& result = b.value(node.result);
    if (!result.wants_gradient) return;
    const BufferId dy = result.gradient;
    if (node.relu) {
      b.emit(node.head, Phase::backward_other, own(b), {result.buffer, dy},
             [=, y = result.buffer, &k = b.kernels,
              threads = b.threads](const LaneMemory& m) -> Bound {
               return [=, &k, py = m.floats(y), pdy = m.floats(dy)](RunState&) {
                 for_floats(threads, size, [&](int64_t n, int64_t at) {
                   k.relu_backward(n, py + at, pdy + at, pdy + at);
                 });
               };
             });
    }
    // The last input takes the buffer itself; the others, copies: a gradient buffer has one owner.
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (!b.value(inputs[i]).wants_gradient) continue;
      BufferId own_gradient = dy;
      if (i + 1 < inputs.size()) {
        own_gradient = b.new_floats(size);
        b.emit(node.head, Phase::backward_data, own(b), {dy, own_gradient},
               [=](const LaneMemory& m) -> Bound {
                 return [=, from = m.floats(dy), to = m.floats(own_gradient)](RunState&) {
                   std::copy_n(from, size, to);
                 };
               });
      }
      b.add_gradient(inputs[i], own_gradient);
    }
  };
}

Backward emit_concat(Builder& b, const Node& node) {
  const std::vector<model::LayerId> inputs = b.graph.layer(node.head).inputs;
  for (const model::LayerId from : inputs) b.blocked(from);
  Value& out = b.value(node.result);
  out.stored = b.stored(b.graph.layer(node.result).out);
  out.buffer = b.new_floats(out.stored.size());
  out.wants_gradient = false;
  int64_t to = 0;
  std::vector<int64_t> first_channel;
  for (const model::LayerId from : inputs) {
    const Value& in = b.value(from);
    first_channel.push_back(to);
    out.wants_gradient = out.wants_gradient || in.wants_gradient;
    const bool last = from == inputs.back() && first_channel.size() == inputs.size();
    b.emit(node.head, Phase::forward, own(b), {in.buffer, out.buffer},
           [=, x = in.buffer, y = out.buffer, sx = in.stored, sy = out.stored,
            &k = b.kernels](const LaneMemory& m) -> Bound {
             return [=, &k, px = m.floats(x), py = m.floats(y)](RunState&) {
               k.copy_channels(sx, px, 0, sy, py, to, sx.channels, 0, sx.n, false);
               if (last) zero_padding(sy, py);
             };
           });
    to += in.stored.channels;
  }
  return [&b, node, inputs, first_channel] {
    const Value& result = b.value(node.result);
    for (size_t i = 0; i < inputs.size(); ++i) {
      const Value& in = b.value(inputs[i]);
      if (!in.wants_gradient) continue;
      const BufferId dx = b.new_floats(in.stored.size());
      b.emit(node.head, Phase::backward_data, own(b), {result.gradient, dx},
             [=, dy = result.gradient, first = first_channel[i], sx = in.stored, sy = result.stored,
              &k = b.kernels](const LaneMemory& m) -> Bound {
               return [=, &k, pdy = m.floats(dy), pdx = m.floats(dx)](RunState&) {
                 k.copy_channels(sy, pdy, first, sx, pdx, 0, sx.channels, 0, sx.n, false);
                 zero_padding(sx, pdx);
               };
             });
      b.add_gradient(inputs[i], dx);
    }
  };
}

Backward emit_flatten(Builder& b, const Node& node) {
  const model::LayerId from = b.graph.layer(node.head).inputs[0];
  Value& out = like_input(b, node.result, from);
  if (flatten_is_free(b.graph, node.head)) {
    const Value& in = b.value(from);
    out.buffer = in.buffer;
    out.rematerialise =
        in.rematerialise ? [&b, from] { return b.available(from); } : std::function<BufferId()>{};
    return [&b, node, from] {
      if (b.value(from).wants_gradient) b.add_gradient(from, b.value(node.result).gradient);
    };
  }
  const BufferId x = b.blocked(from);
  out.stored = b.stored(b.graph.layer(node.result).out);
  out.buffer = b.new_floats(out.stored.size());
  emit_repack(b, node.head, Phase::reorder, b.value(from).stored, x, out.stored, out.buffer);
  return [&b, node, from] {
    const Value& result = b.value(node.result);
    const Value& source = b.value(from);
    if (!source.wants_gradient) return;
    const BufferId dx = b.new_floats(source.stored.size());
    emit_repack(b, node.head, Phase::reorder, result.stored, result.gradient, source.stored, dx);
    b.add_gradient(from, dx);
  };
}

}  // namespace convoy::engine
