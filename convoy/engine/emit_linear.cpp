// Linear layers: a grain's rows against the weights as they lie, three matrix products.

#include "convoy/engine/builder.hpp"

namespace convoy::engine {
namespace {

struct LinearParts {
  int64_t n = 0, k = 0, f = 0;  // rows, stored inputs, padded outputs
  int64_t weight = 0, bias = -1, begin = 0;
  bool plain_input = false;  // reads the network's input in place
};

LinearParts describe(Builder& b, model::LayerId id) {
  const model::LayerId from = b.graph.layer(id).inputs[0];
  LinearParts p;
  p.n = b.grain;
  p.plain_input = !b.tensor(id, model::Role::weight)->source_blocked;
  p.k = p.plain_input ? b.graph.layer(from).out.size() : b.value(from).stored.image();
  p.f = round_up(b.graph.layer(id).out.channels, kBlock);
  p.weight = b.tensor(id, model::Role::weight)->offset;
  if (const Tensor* bias = b.tensor(id, model::Role::bias)) p.bias = bias->offset;
  p.begin = b.span(id).first;
  return p;
}

void emit_backward(Builder& b, const Node& node, const LinearParts& p, model::LayerId from) {
  const Value& result = b.value(node.result);
  const BufferId dy = result.gradient;
  const BufferId kept = node.relu ? result.buffer : kNone;
  const BufferId x = p.plain_input ? kNone : b.available(from);
  const Blocked rows = result.stored;
  b.emit(node.head, Phase::backward_weights, std::string("own ") + b.kernels.isa, {x, dy, kept},
         [=, &kernels = b.kernels, threads = b.threads](const LaneMemory& m) -> Bound {
           return [=, &kernels, px = m.floats(x), pdy = m.floats(dy),
                   py = m.floats(kept)](RunState& run) {
             if (p.bias >= 0) {
               kernels.bias_backward(rows, 0, rows.blocks(), py, pdy,
                                     run.gradient(p.bias, p.begin));
             } else if (py != nullptr) {
               kernels.relu_backward(rows.size(), py, pdy, pdy);
             }
             const float* input = px != nullptr ? px : run.grain->input;
             float* dw = run.gradient(p.weight, p.begin);
             for_range(threads, p.f / kBlock, [&](int64_t b0, int64_t b1) {
               kernels.linear_backward_weights(p.n, p.k, p.f, b0 * kBlock, b1 * kBlock, input, pdy,
                                               dw);
             });
           };
         });
  b.completes(node.head);
  if (!b.value(from).wants_gradient) return;
  const BufferId dx = b.new_floats(b.value(from).stored.size());
  b.emit(node.head, Phase::backward_data, std::string("own ") + b.kernels.isa, {dy, dx},
         [=, &kernels = b.kernels, threads = b.threads](const LaneMemory& m) -> Bound {
           return [=, &kernels, pdy = m.floats(dy), pdx = m.floats(dx),
                   w = m.weights.arena + p.weight](RunState&) {
             for_range(threads, p.k / kBlock, [&](int64_t b0, int64_t b1) {
               kernels.linear_backward_data(p.n, p.k, p.f, b0 * kBlock, b1 * kBlock, pdy, w, pdx);
             });
           };
         });
  b.add_gradient(from, dx);
}

}  // namespace

Backward emit_linear(Builder& b, const Node& node) {
  const model::LayerId from = b.graph.layer(node.head).inputs[0];
  const LinearParts p = describe(b, node.head);
  const BufferId x = p.plain_input ? kNone : b.blocked(from);
  Value& out = b.value(node.result);
  out.stored = b.stored(b.graph.layer(node.result).out);
  out.buffer = b.new_floats(out.stored.size());
  b.emit(node.head, Phase::forward, std::string("own ") + b.kernels.isa, {x, out.buffer},
         [=, y = out.buffer, relu = node.relu, &kernels = b.kernels,
          threads = b.threads](const LaneMemory& m) -> Bound {
           return [=, &kernels, px = m.floats(x), py = m.floats(y), w = m.weights.arena + p.weight,
                   bias = p.bias >= 0 ? m.weights.arena + p.bias : nullptr](RunState& run) {
             const float* input = px != nullptr ? px : run.grain->input;
             for_range(threads, p.f / kBlock, [&](int64_t b0, int64_t b1) {
               kernels.linear_forward(p.n, p.k, p.f, b0 * kBlock, b1 * kBlock, input, w, bias, relu,
                                      py);
             });
           };
         });
  return [&b, node, p, from] { emit_backward(b, node, p, from); };
}

}  // namespace convoy::engine
