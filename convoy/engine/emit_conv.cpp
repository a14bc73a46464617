// Convolution: oneDNN's blocked direct kernels forward and backward-data, own kernels for the
// gradient of the weights, which oneDNN leaves at 55–75 % of peak on AVX2.

#include <optional>

#include "convoy/base/error.hpp"
#include "convoy/engine/dnnl_call.hpp"

namespace convoy::engine {
namespace {

using dnnl::memory;
using Tag = memory::format_tag;
constexpr auto kF32 = memory::data_type::f32;

struct ConvParts {
  ConvShape shape;
  Layout layout = Layout::conv;
  memory::dims strides, dilates, padding;
  memory::dims weight_dims;
  memory::desc x, y, weights, weights_transposed, bias;

  memory::desc any(const memory::desc& like) const { return {like.dims(), kF32, Tag::any}; }
};

ConvParts describe(const Builder& b, model::LayerId id) {
  ConvParts p;
  p.shape = conv_shape(b.graph, id, b.grain);
  const ConvShape& s = p.shape;
  p.layout = b.tensor(id, model::Role::weight)->layout;
  p.strides = {s.stride_h, s.stride_w};
  p.dilates = {s.dilation_h - 1, s.dilation_w - 1};
  p.padding = {s.pad_h, s.pad_w};
  p.x = {{s.n, s.ic, s.ih, s.iw}, kF32, s.plain_input ? Tag::nchw : Tag::nChw8c};
  p.y = {{s.n, s.oc, s.oh, s.ow}, kF32, Tag::nChw8c};
  p.bias = {{s.oc}, kF32, Tag::x};
  const bool grouped = s.groups > 1;
  if (grouped) {
    p.weight_dims = {s.groups, s.oc / s.groups, s.ic / s.groups, s.kh, s.kw};
  } else {
    p.weight_dims = {s.oc, s.ic, s.kh, s.kw};
  }
  Tag forward = grouped ? Tag::goihw : Tag::oihw;
  Tag backward = forward;
  if (p.layout == Layout::conv) {
    forward = grouped ? Tag::gOIhw8i8o : Tag::OIhw8i8o;
    backward = grouped ? Tag::gOIhw8o8i : Tag::OIhw8o8i;
  } else if (p.layout == Layout::conv_input) {
    forward = backward = Tag::Ohwi8o;
  } else if (p.layout == Layout::depthwise) {
    forward = backward = Tag::Goihw8g;
  }
  p.weights = {p.weight_dims, kF32, forward};
  p.weights_transposed = {p.weight_dims, kF32, backward};
  return p;
}

/// Tries our layouts first; where oneDNN has only its reference for them, lets it choose.
template <typename Make>
auto with_best_layout(const Make& make) {
  std::optional<decltype(make(true))> ours;
  try {
    ours.emplace(make(true));
    if (!is_reference(ours->impl_info_str())) return *ours;
  } catch (const dnnl::error&) {
    // No implementation at all for our layouts.
    ours.reset();
  }
  auto any = make(false);
  if (ours && is_reference(any.impl_info_str())) return *ours;
  return any;
}

dnnl::convolution_forward::primitive_desc forward_desc(const ConvParts& p, bool bias, bool relu) {
  dnnl::primitive_attr attributes = user_scratchpad();
  if (relu) {
    dnnl::post_ops post;
    post.append_eltwise(1.0F, dnnl::algorithm::eltwise_relu, 0.0F, 0.0F);
    attributes.set_post_ops(post);
  }
  return with_best_layout([&](bool ours) {
    const auto as = [&](const memory::desc& d) { return ours ? d : p.any(d); };
    using Desc = dnnl::convolution_forward::desc;
    constexpr auto kProp = dnnl::prop_kind::forward_training;
    constexpr auto kAlgorithm = dnnl::algorithm::convolution_direct;
    const Desc desc = bias ? Desc(kProp, kAlgorithm, as(p.x), as(p.weights), p.bias, as(p.y),
                                  p.strides, p.dilates, p.padding, p.padding)
                           : Desc(kProp, kAlgorithm, as(p.x), as(p.weights), as(p.y), p.strides,
                                  p.dilates, p.padding, p.padding);
    return dnnl::convolution_forward::primitive_desc(desc, attributes, cpu_engine());
  });
}

void emit_own_forward(Builder& b, const Node& node, const ConvParts& p, BufferId y) {
  const Tensor* weight = b.tensor(node.head, model::Role::weight);
  const Tensor* bias = b.tensor(node.head, model::Role::bias);
  b.emit(node.head, Phase::forward, std::string("own ") + b.kernels.isa, {y},
         [=, s = p.shape, relu = node.relu, weights = weight->offset,
          biases = bias != nullptr ? bias->offset : -1, &k = b.kernels,
          threads = b.threads](const LaneMemory& m) -> Bound {
           return [=, &k, py = m.floats(y), w = m.weights.arena + weights,
                   pb = biases < 0 ? nullptr : m.weights.arena + biases](RunState& run) {
             for_range(threads, s.n, [&](int64_t n0, int64_t n1) {
               k.conv_forward_plain(s, n0, n1, run.grain->input, w, pb, relu, py);
             });
           };
         });
}

void emit_forward(Builder& b, const Node& node, const ConvParts& p, BufferId x, BufferId y) {
  const Tensor* weight = b.tensor(node.head, model::Role::weight);
  const Tensor* bias = b.tensor(node.head, model::Role::bias);
  const auto pd = forward_desc(p, bias != nullptr, node.relu);
  const bool in_our_layouts = pd.dst_desc() == p.y && pd.weights_desc() == p.weights;
  if (p.shape.plain_input && (!in_our_layouts || is_reference(pd.impl_info_str()))) {
    emit_own_forward(b, node, p, y);
    return;
  }
  std::vector<Operand> operands = {
      {DNNL_ARG_SRC, p.x, pd.src_desc(), Place::of_value(x), false},
      {DNNL_ARG_WEIGHTS, p.weights, pd.weights_desc(), Place::of_weights(weight->offset), false},
      {DNNL_ARG_DST, p.y, pd.dst_desc(), Place::at(y), true}};
  if (bias != nullptr) {
    operands.push_back({DNNL_ARG_BIAS, p.bias, p.bias, Place::of_weights(bias->offset), false});
  }
  emit_primitive(b, node.head, Phase::forward, dnnl::convolution_forward(pd), pd.scratchpad_desc(),
                 pd.impl_info_str(), operands);
}

/// Where backward-data finds the weights: blocked ones in their transposed copy.
Place transposed_weights(Builder& b, model::LayerId id, const ConvParts& p) {
  const Tensor* weight = b.tensor(id, model::Role::weight);
  if (p.layout != Layout::conv) return Place::of_weights(weight->offset);
  return Place::of_prepared(b.prepare(id, weight->stored, weight->stored / (kBlock * kBlock),
                                      [from = weight->offset, &k = b.kernels](
                                          const float* arena, float* to, int64_t b0, int64_t b1) {
                                        constexpr int64_t kValues = kBlock * kBlock;
                                        k.transpose_blocks(b1 - b0, arena + from + b0 * kValues,
                                                           to + b0 * kValues);
                                      }));
}

void emit_own_data(Builder& b, model::LayerId id, const ConvParts& p, BufferId dy, BufferId dx) {
  const int64_t offset = transposed_weights(b, id, p).offset;
  const bool prepared = p.layout == Layout::conv;
  b.emit(id, Phase::backward_data, std::string("own ") + b.kernels.isa, {dy, dx},
         [=, s = p.shape, &k = b.kernels, threads = b.threads](const LaneMemory& m) -> Bound {
           const float* from = prepared ? m.weights.prepared : m.weights.arena;
           return [=, &k, pdy = m.floats(dy), pdx = m.floats(dx), w = from + offset](RunState&) {
             for_range(threads, s.n, [&](int64_t n0, int64_t n1) {
               k.conv_backward_data(s, n0, n1, pdy, w, pdx);
             });
           };
         });
}

void emit_backward_data(Builder& b, model::LayerId id, const ConvParts& p, BufferId dy,
                        BufferId dx) {
  if (b.kernels.conv_backward_data_supported(p.shape)) {
    emit_own_data(b, id, p, dy, dx);
    return;
  }
  const auto pd = with_best_layout([&](bool ours) {
    const auto as = [&](const memory::desc& d) { return ours ? d : p.any(d); };
    const dnnl::convolution_backward_data::desc desc(dnnl::algorithm::convolution_direct, as(p.x),
                                                     as(p.weights_transposed), as(p.y), p.strides,
                                                     p.dilates, p.padding, p.padding);
    return dnnl::convolution_backward_data::primitive_desc(desc, user_scratchpad(), cpu_engine(),
                                                           forward_desc(p, false, false));
  });
  const Place weights = transposed_weights(b, id, p);
  emit_primitive(b, id, Phase::backward_data, dnnl::convolution_backward_data(pd),
                 pd.scratchpad_desc(), pd.impl_info_str(),
                 {{DNNL_ARG_DIFF_DST, p.y, pd.diff_dst_desc(), Place::at(dy), false},
                  {DNNL_ARG_WEIGHTS, p.weights_transposed, pd.weights_desc(), weights, false},
                  {DNNL_ARG_DIFF_SRC, p.x, pd.diff_src_desc(), Place::at(dx), true}});
}

/// The gradient of the weights by our own kernel.
void emit_own_weights(Builder& b, model::LayerId id, const ConvParts& p, BufferId x, BufferId dy) {
  const Tensor* weight = b.tensor(id, model::Role::weight);
  const int64_t begin = b.span(id).first;
  const int64_t scratch_floats = b.kernels.conv_backward_weights_scratch(p.shape);
  const BufferId scratch = scratch_floats > 0 ? b.new_floats(scratch_floats * b.threads) : kNone;
  b.emit(id, Phase::backward_weights, std::string("own ") + b.kernels.isa, {x, dy, scratch},
         [=, s = p.shape, offset = weight->offset, &k = b.kernels,
          threads = b.threads](const LaneMemory& m) -> Bound {
           return [=, &k, px = m.floats(x), pdy = m.floats(dy),
                   pscratch = m.floats(scratch)](RunState& run) {
             const float* input = px != nullptr ? px : run.grain->input;
             float* dw = run.gradient(offset, begin);
             const int64_t blocks = (s.oc + kBlock - 1) / kBlock;
             for_range(threads, blocks, [&](int64_t b0, int64_t b1) {
               // Each thread's scratch: numbered by where its range starts.
               const int64_t thread = (b0 * threads + blocks - 1) / blocks;
               float* own = pscratch == nullptr ? nullptr : pscratch + thread * scratch_floats;
               k.conv_backward_weights(s, b0, b1, input, pdy, dw, own);
             });
           };
         });
}

void emit_dnnl_weights(Builder& b, model::LayerId id, const ConvParts& p, BufferId x, BufferId dy) {
  const auto pd = with_best_layout([&](bool ours) {
    const auto as = [&](const memory::desc& d) { return ours ? d : p.any(d); };
    const dnnl::convolution_backward_weights::desc desc(dnnl::algorithm::convolution_direct,
                                                        as(p.x), as(p.weights), as(p.y), p.strides,
                                                        p.dilates, p.padding, p.padding);
    return dnnl::convolution_backward_weights::primitive_desc(desc, user_scratchpad(), cpu_engine(),
                                                              forward_desc(p, false, false));
  });
  const Tensor* weight = b.tensor(id, model::Role::weight);
  emit_primitive(b, id, Phase::backward_weights, dnnl::convolution_backward_weights(pd),
                 pd.scratchpad_desc(), pd.impl_info_str(),
                 {{DNNL_ARG_SRC, p.x, pd.src_desc(), Place::of_value(x), false},
                  {DNNL_ARG_DIFF_DST, p.y, pd.diff_dst_desc(), Place::at(dy), false},
                  {DNNL_ARG_DIFF_WEIGHTS, p.weights, pd.diff_weights_desc(),
                   Place::of_gradient(weight->offset, b.span(id).first), true}});
}

/// Undoes the fused ReLU in place and sums the bias' gradient, in one pass over dy.
void emit_mask_and_bias(Builder& b, const Node& node, const Blocked& s, BufferId y, BufferId dy) {
  const Tensor* bias = b.tensor(node.head, model::Role::bias);
  const bool mask = node.relu && !node.pool_undoes_relu;
  if (bias == nullptr && !mask) return;
  const BufferId kept = mask ? y : kNone;
  const std::string kernel = std::string("own ") + b.kernels.isa;
  if (bias == nullptr) {
    b.emit(node.head, Phase::backward_other, kernel, {kept, dy},
           [=, &k = b.kernels, threads = b.threads](const LaneMemory& m) -> Bound {
             return [=, &k, py = m.floats(kept), pdy = m.floats(dy)](RunState&) {
               for_range(threads, s.n, [&](int64_t n0, int64_t n1) {
                 const int64_t at = n0 * s.image();
                 k.relu_backward((n1 - n0) * s.image(), py + at, pdy + at, pdy + at);
               });
             };
           });
    return;
  }
  const int64_t begin = b.span(node.head).first;
  b.emit(node.head, Phase::backward_other, kernel, {kept, dy},
         [=, offset = bias->offset, &k = b.kernels,
          threads = b.threads](const LaneMemory& m) -> Bound {
           return [=, &k, py = m.floats(kept), pdy = m.floats(dy)](RunState& run) {
             float* d_bias = run.gradient(offset, begin);
             for_range(threads, s.blocks(), [&](int64_t b0, int64_t b1) {
               k.bias_backward(s, b0, b1, py, pdy, d_bias);
             });
           };
         });
}

ConvAlgorithms chosen(Builder& b, model::LayerId id, const ConvShape& s) {
  const auto found = b.algorithms.find(id);
  if (found == b.algorithms.end()) return {};
  for (const Direction direction : kDirections) {
    if (direction == Direction::backward_data &&
        !b.value(b.graph.layer(id).inputs[0]).wants_gradient) {
      continue;
    }
    const Algorithm algorithm = found->second.of(direction);
    const std::string why = obstacle(b.kernels, s, algorithm, direction);
    if (!why.empty()) {
      refuse("layer '{}' cannot be computed by {} ({}): {}", b.graph.layer(id).name,
             to_string(algorithm), to_string(direction), why);
    }
  }
  return found->second;
}

}  // namespace

Backward emit_conv(Builder& b, const Node& node) {
  const model::LayerId from = b.graph.layer(node.head).inputs[0];
  const ConvParts parts = describe(b, node.head);
  const bool plain = parts.shape.plain_input;
  const BufferId x = plain ? kNone : b.blocked(from);
  Value& out = b.value(node.result);
  out.stored = b.stored(b.graph.layer(node.result).out);
  out.buffer = b.new_floats(out.stored.size());
  out.wants_gradient = true;
  const ConvAlgorithms algorithms = chosen(b, node.head, parts.shape);
  if (is_tiled(algorithms.forward)) {
    emit_tiled_forward(b, node, parts.shape, algorithms.forward, x, out.buffer);
  } else if (algorithms.forward == Algorithm::lowering) {
    emit_lowering_forward(b, node, parts.shape, x, out.buffer);
  } else {
    emit_forward(b, node, parts, x, out.buffer);
  }

  return [&b, node, from, parts, plain, algorithms] {
    const Value& result = b.value(node.result);
    const BufferId dy = result.gradient;
    emit_mask_and_bias(b, node, result.stored, result.buffer, dy);
    const BufferId input = plain ? kNone : b.available(from);
    if (is_tiled(algorithms.backward_weights)) {
      emit_tiled_weights(b, node.head, parts.shape, algorithms.backward_weights, input, dy);
    } else if (algorithms.backward_weights == Algorithm::lowering) {
      emit_lowering_weights(b, node.head, parts.shape, input, dy);
    } else if (b.kernels.conv_backward_weights_supported(parts.shape)) {
      emit_own_weights(b, node.head, parts, input, dy);
    } else {
      emit_dnnl_weights(b, node.head, parts, input, dy);
    }
    b.completes(node.head);
    if (!b.value(from).wants_gradient) return;
    const BufferId dx = b.new_floats(b.value(from).stored.size());
    if (is_tiled(algorithms.backward_data)) {
      emit_tiled_data(b, node.head, parts.shape, algorithms.backward_data, dy, dx);
    } else if (algorithms.backward_data == Algorithm::lowering) {
      emit_lowering_data(b, node.head, parts.shape, transposed_weights(b, node.head, parts).offset,
                         dy, dx);
    } else {
      emit_backward_data(b, node.head, parts, dy, dx);
    }
    b.add_gradient(from, dx);
  };
}

}  // namespace convoy::engine
