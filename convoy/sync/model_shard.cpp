#include "convoy/sync/model_shard.hpp"

#include <algorithm>
#include <bit>

#include "convoy/base/error.hpp"
#include "convoy/sync/group_layout.hpp"

namespace convoy::sync {
namespace {

std::vector<AlignedBuffer> make_buffers(const engine::Program& program,
                                        const optim::Optimizer& optimizer) {
  std::vector<AlignedBuffer> buffers(1 + static_cast<size_t>(optimizer.state_arrays()));
  for (AlignedBuffer& b : buffers) b = AlignedBuffer::of_floats(program.arena().size());
  return buffers;
}

/// Without room for norms: a shard gets them from outside.
ModelArrays arrays_of(std::vector<AlignedBuffer>& buffers) {
  ModelArrays arrays;
  arrays.weights = buffers.front().floats();
  for (size_t i = 1; i < buffers.size(); ++i) arrays.states.push_back(buffers[i].floats());
  return arrays;
}

}  // namespace

comm::Strips cut_into_shards(const engine::Arena& arena, int shards) {
  const std::vector<Chunk> chunks = cut_into_chunks(arena);
  return cut_into_strips(chunks, {0, chunks.size(), 0, arena.size()}, shards);
}

comm::Strips cut_into_stripes(const engine::Arena& arena, int servers, Bytes stripe) {
  // Of large models not shorter than a huge page, which would take memory of every server.
  constexpr int64_t kLarge = int64_t{32} << 20;
  constexpr int64_t kHugePage = int64_t{2} << 20;
  const Bytes model{4 * arena.size()};
  int64_t wanted = stripe.value;
  if (wanted == 0) {
    wanted = bucket_for_servers(model).value / servers;
    if (model.value >= kLarge) wanted = std::max(wanted, kHugePage);
  }
  const int64_t each = std::max<int64_t>(1, model.value / (wanted * servers));
  return cut_into_shards(arena, servers > 1 ? static_cast<int>(each) * servers : 1);
}

bool all_finite(std::span<const float> values) {
  // As integers without their sign, numbers keep their order, and what is not finite is on top.
  constexpr uint32_t kMagnitude = 0x7fffffff;
  constexpr uint32_t kInfinity = 0x7f800000;
  uint32_t most = 0;
  for (const float v : values) most = std::max(most, std::bit_cast<uint32_t>(v) & kMagnitude);
  return most < kInfinity;
}

ModelShard::ModelShard(const engine::Program& program, const optim::Optimizer& optimizer,
                       const UpdateOptions& options, const comm::Strip& floats, int pushes)
    : ModelShard(program, optimizer, options, comm::Strips{floats}) {
  pushes_ = static_cast<size_t>(pushes);
}

ModelShard::ModelShard(const engine::Program& program, const optim::Optimizer& optimizer,
                       const UpdateOptions& options, const comm::Strips& strips)
    : floats_{strips.front().begin, strips.back().end},
      buffers_(make_buffers(program, optimizer)),
      updater_(program, optimizer, options, arrays_of(buffers_)),
      sums_(kChunk) {
  for (size_t i = 0; i < updater_.chunks().size(); ++i) {
    const int64_t begin = updater_.chunks()[i].begin;
    const bool own = std::ranges::any_of(
        strips, [begin](const comm::Strip& s) { return begin >= s.begin && begin < s.end; });
    if (own) chunks_.push_back(i);
  }
  versions_.resize(chunks_.size());
}

size_t ModelShard::place(int64_t begin) const {
  const auto after = std::upper_bound(
      chunks_.begin(), chunks_.end(), begin,
      [this](int64_t at, size_t chunk) { return at < updater_.chunks()[chunk].begin; });
  check(after != chunks_.begin() && begin < updater_.chunks()[*std::prev(after)].end,
        "a piece is of the shard");
  return static_cast<size_t>(after - chunks_.begin()) - 1;
}

bool ModelShard::begins_chunk(int64_t begin) const {
  return updater_.chunks()[chunks_[place(begin)]].begin == begin;
}

int64_t ModelShard::version_of(const comm::Strip& floats) const {
  if (begins_chunk(floats.begin)) return versions_[place(floats.begin)];
  const auto found = odd_versions_.find(floats.begin);
  return found == odd_versions_.end() ? 0 : found->second;
}

void ModelShard::update(const comm::Strip& floats, const optim::StepContext& context,
                        std::span<const float> gradient, int64_t version) {
  staleness_.record(version_of(floats) - version);
  if (!begins_chunk(floats.begin)) ++odd_versions_[floats.begin];
  for (size_t i = place(floats.begin); i < chunks_.size(); ++i) {
    const Chunk& chunk = updater_.chunks()[chunks_[i]];
    if (chunk.begin >= floats.end) break;
    const int64_t begin = std::max(chunk.begin, floats.begin);
    updater_.update(chunks_[i], begin, std::min(chunk.end, floats.end),
                    gradient.data() + (begin - floats.begin), context);
    if (begin == chunk.begin) ++versions_[i];
  }
}

std::vector<size_t> ModelShard::parameter_chunks() const {
  std::vector<size_t> all;
  for (const size_t chunk : chunks_) {
    const size_t tensor = updater_.chunks()[chunk].tensor;
    if (updater_.arena().tensors()[tensor].kind == engine::Kind::parameter) all.push_back(chunk);
  }
  return all;
}

void ModelShard::add(int worker, const Push& push) {
  check(static_cast<int64_t>(push.gradient.size()) == floats_.size(),
        "a push is as long as the shard");
  const auto finite = [&](size_t index) {
    return all_finite(part(push, updater_.chunks()[index]));
  };
  if (!std::all_of(chunks_.begin(), chunks_.end(), finite)) {
    fail("worker {} pushed a gradient (step {}) that is not finite here, but was there", worker,
         push.context.step);
  }
  check(waiting_.empty() || waiting_.begin()->second.context.step == push.context.step,
        "gradients of one update are of one step");
  check(waiting_.emplace(worker, push).second, "a worker adds to an update once");
  if (waiting_.size() == pushes_) update();
}

std::span<const float> ModelShard::part(const Push& push, const Chunk& chunk) const {
  return push.gradient.subspan(static_cast<size_t>(chunk.begin - floats_.begin),
                               static_cast<size_t>(chunk.end - chunk.begin));
}

const float* ModelShard::sum(const Chunk& chunk) {
  const std::span<const float> first = part(waiting_.begin()->second, chunk);
  if (waiting_.size() == 1) return first.data();
  std::ranges::copy(first, sums_.begin());
  for (auto it = std::next(waiting_.begin()); it != waiting_.end(); ++it) {
    comm::add_to(part(it->second, chunk), std::span(sums_).first(first.size()));
  }
  return sums_.data();
}

void ModelShard::update() {
  optim::StepContext context = waiting_.begin()->second.context;
  context.gradient_scale /= static_cast<double>(pushes_);
  for (const size_t index : chunks_) {
    updater_.update(index, sum(updater_.chunks()[index]), context);
  }
  for (const auto& [worker, push] : waiting_) staleness_.record(version_ - push.version);
  waiting_.clear();
  ++version_;
}

}  // namespace convoy::sync
