#include "convoy/engine/builder.hpp"

#include <algorithm>

#include "convoy/base/error.hpp"

namespace convoy::engine {

Builder::Builder(const model::Graph& graph_in, const CompileOptions& options)
    : graph(graph_in),
      kernels(options.kernels != nullptr ? *options.kernels : select_kernels()),
      grain(options.grain),
      threads(options.threads_per_lane),
      recompute_norm(options.recompute_norm),
      algorithms(options.algorithms),
      lowered_together(options.lowered_together),
      values(graph_in.layers().size()) {}

BufferId Builder::new_bytes(int64_t count) {
  lifetimes.push_back({Bytes{count}, -1, -1});
  return static_cast<BufferId>(lifetimes.size()) - 1;
}

Instruction& Builder::emit(model::LayerId layer, Phase phase, std::string kernel,
                           const std::vector<BufferId>& buffers,
                           std::function<Bound(const LaneMemory&)> bind) {
  const int index = static_cast<int>(instructions.size());
  for (const BufferId id : buffers) {
    if (id == kNone) continue;
    Lifetime& life = lifetimes[static_cast<size_t>(id)];
    if (life.first < 0) life.first = index;
    life.last = index;
  }
  Instruction instruction;
  instruction.info = {layer, phase, std::move(kernel)};
  instruction.training_only = backward_;
  instruction.bind = std::move(bind);
  instructions.push_back(std::move(instruction));
  return instructions.back();
}

BufferId Builder::available(model::LayerId id) {
  Value& v = value(id);
  if (v.rematerialise) {
    v.buffer = v.rematerialise();
    v.rematerialise = nullptr;
  }
  return v.buffer;
}

BufferId Builder::blocked(model::LayerId id) {
  Value& v = value(id);
  if (v.buffer != kNone) return v.buffer;
  if (id != 0) {
    // Only a flattening that costs nothing can share the input's place, which is not blocked yet.
    v.buffer = blocked(graph.layer(id).inputs[0]);
    return v.buffer;
  }
  const BufferId to = new_floats(v.stored.size());
  v.buffer = to;
  emit(id, Phase::border, std::string("own ") + kernels.isa, {to},
       [to, s = v.stored, &k = kernels, threads = threads](const LaneMemory& m) -> Bound {
         return [=, &k, y = m.floats(to)](RunState& run) {
           for_range(threads, s.n,
                     [&](int64_t n0, int64_t n1) { k.block(s, n0, n1, run.grain->input, y); });
         };
       });
  return to;
}

int64_t Builder::prepare(
    model::LayerId layer, int64_t floats, int64_t units,
    std::function<void(const float* arena, float* to, int64_t begin, int64_t end)> rewrite) {
  constexpr int64_t kLine = 16;
  const int64_t offset = prepared_size;
  preparations.push_back({layer, offset, units, std::move(rewrite)});
  prepared_size += round_up(floats, kLine);
  return offset;
}

void Builder::add_gradient(model::LayerId id, BufferId gradient) {
  Value& v = value(id);
  if (v.gradient == kNone) {
    v.gradient = gradient;
    return;
  }
  const BufferId sum = v.gradient;
  emit(id, Phase::backward_other, std::string("own ") + kernels.isa, {sum, gradient},
       [=, n = v.stored.size(), &k = kernels, threads = threads](const LaneMemory& m) -> Bound {
         return [=, &k, x = m.floats(gradient), y = m.floats(sum)](RunState&) {
           for_range(threads, n / kBlock, [&](int64_t begin, int64_t end) {
             k.accumulate((end - begin) * kBlock, x + begin * kBlock, y + begin * kBlock);
           });
         };
       });
}

const Tensor* Builder::tensor(model::LayerId layer, model::Role role, Kind kind) const {
  const auto& all = arena.tensors();
  const auto found = std::find_if(all.begin(), all.end(), [&](const Tensor& t) {
    return t.layer == layer && t.kind == kind && (kind != Kind::parameter || t.role == role);
  });
  return found == all.end() ? nullptr : &*found;
}

std::pair<int64_t, int64_t> Builder::span(model::LayerId layer) const {
  int64_t begin = arena.size();
  int64_t end = 0;
  for (const Tensor& t : arena.tensors()) {
    if (t.layer != layer) continue;
    begin = std::min(begin, t.offset);
    end = std::max(end, t.offset + t.stored);
  }
  return {begin, end};
}

void Builder::completes(model::LayerId layer) {
  const auto [begin, end] = span(layer);
  instructions.back().complete_begin = begin;
  instructions.back().complete_end = end;
}

void Builder::mark_needs() {
  std::vector<bool> seen(values.size(), false);
  for (Instruction& i : instructions) {
    const auto layer = static_cast<size_t>(i.info.layer);
    if (seen[layer]) continue;
    seen[layer] = true;
    const auto [begin, end] = span(i.info.layer);
    if (begin >= end) continue;
    i.needs_begin = begin;
    i.needs_end = end;
  }
}

}  // namespace convoy::engine
