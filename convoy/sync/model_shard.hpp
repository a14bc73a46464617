#pragma once
// A part of the model that one server owns: weights and optimizer state of one or several runs of
// chunks, and the updates to them. No messages here; shard_server.hpp and shard_lines.hpp bring
// them.

#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "convoy/base/memory.hpp"
#include "convoy/comm/collectives.hpp"
#include "convoy/engine/program.hpp"
#include "convoy/optim/optimizer.hpp"
#include "convoy/sync/staleness.hpp"
#include "convoy/sync/updater.hpp"

namespace convoy::sync {

/// The arena in as many shards of about equal size; whole chunks, so large tensors are split.
comm::Strips cut_into_shards(const engine::Arena& arena, int shards);

/// True if neither NaN nor infinity is among them.
bool all_finite(std::span<const float> values);

/// The arena in stripes of about this size (0: by the model's), which the servers own in turn:
/// stripe i is of server i modulo `servers`.
/// Groups compute the layers of a model in the same order, often at the same time. With one shard
/// for each server all would wait for the last one's first, then for the one's before.
comm::Strips cut_into_stripes(const engine::Arena& arena, int servers, Bytes stripe = {});

class ModelShard {
 public:
  /// Arena floats `floats`; one update per `pushes` pushes.
  ModelShard(const engine::Program& program, const optim::Optimizer& optimizer,
             const UpdateOptions& options, const comm::Strip& floats, int pushes);
  /// Several strips of the arena, ascending; updated piece by piece.
  ModelShard(const engine::Program& program, const optim::Optimizer& optimizer,
             const UpdateOptions& options, const comm::Strips& strips);

  /// The shard's part of the weights (0) and of the optimizer's states (1, …).
  std::span<float> array(size_t index) { return comm::at(buffers_[index].floats(), floats_); }
  size_t arrays() const { return buffers_.size(); }
  /// Of one of those, floats of the shard.
  std::span<float> array(size_t index, const comm::Strip& floats) {
    return comm::at(buffers_[index].floats(), floats);
  }

  /// Updates made.
  int64_t version() const { return version_; }

  /// A gradient of the shard, computed from the weights of `version`. The context is that of the
  /// whole gradient, whose norms a shard does not see.
  struct Push {
    optim::StepContext context;
    int64_t version = 0;
    std::span<const float> gradient;
  };
  /// Updates when `pushes` of them are here; until then their memory must stay. They are summed in
  /// the order of the workers, and their mean is the gradient (statistics: their sum). Throws Error
  /// if it is not finite: its worker has looked before it sent it.
  void add(int worker, const Push& push);

  // ---- piece by piece: pieces have versions of their own (shard_lines.hpp)
  // Pieces are floats of the shard. Whoever cuts it otherwise than at the beginnings of chunks does
  // so alike in all groups.
  std::span<float> weights(const comm::Strip& floats) { return array(0, floats); }
  /// Updates made to the beginning of a piece.
  int64_t version_of(const comm::Strip& floats) const;
  /// True if a chunk begins there.
  bool begins_chunk(int64_t begin) const;
  /// One update by the gradient of a piece, computed from its weights of `version`.
  void update(const comm::Strip& floats, const optim::StepContext& context,
              std::span<const float> gradient, int64_t version);
  /// Of the shard, those of parameters.
  std::vector<size_t> parameter_chunks() const;
  comm::Strip floats(size_t chunk) const {
    return {updater_.chunks()[chunk].begin, updater_.chunks()[chunk].end};
  }

  /// Of all pushes that became part of an update since the last call.
  Staleness take_staleness() { return std::exchange(staleness_, {}); }

 private:
  /// Of the shard's chunks, the one that this float is in.
  size_t place(int64_t begin) const;
  void update();
  std::span<const float> part(const Push& push, const Chunk& chunk) const;
  const float* sum(const Chunk& chunk);

  comm::Strip floats_;  // from the first to the last
  size_t pushes_ = 1;
  // Whole arenas, because that is what an Updater knows; of large ones only what is touched, the
  // shard, takes memory.
  std::vector<AlignedBuffer> buffers_;
  Updater updater_;
  std::vector<size_t> chunks_;               // of the shard
  std::vector<int64_t> versions_;            // of those, piece by piece
  std::map<int64_t, int64_t> odd_versions_;  // of pieces that begin within a chunk, by where
  std::map<int, Push> waiting_;
  std::vector<float> sums_;  // of a chunk
  int64_t version_ = 0;
  Staleness staleness_;
};

}  // namespace convoy::sync
