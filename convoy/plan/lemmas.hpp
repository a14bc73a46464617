#pragma once
// What the papers say in a formula each, in our words and units. They leave out overlap, latency
// and unequal machines, which step_model.hpp does not; both stand side by side so that the
// difference can be seen.

#include <cstdint>

#include "convoy/base/units.hpp"

namespace convoy::plan {

// ---- Zou17: how many workers. `overhead` is R_O: what a step takes beside computing, as a part of
// the computing, on one worker.

/// α(G) = (1 + R_O)/(1 + G·R_O): the part of G workers' speed that is left.
double efficiency(double overhead, int workers);
/// The overhead that G workers may have for an efficiency α: (1 − α)/(α·G − 1). Infinite where α·G
/// ≤ 1: any will do.
double allowed_overhead(double efficiency, int workers);
/// The most workers with an efficiency of α: ⌊(1 + R_O − α)/(α·R_O)⌋, one at least.
int most_workers(double overhead, double efficiency);

// ---- Zou17: how many servers

/// So many servers hide pushing and pulling behind a step's computing: each group moves the model
/// to the servers and back once in a step, and a server's link takes `link` bytes/s in each
/// direction at the same time, so  servers ≥ model · groups/(link · computing), one at least.
int servers_needed(Bytes model, int groups, double link, Seconds computing);

// ---- Das16: what travels for one layer in a step, per worker. A linear layer has k = 1 and
// in = 1.

struct LayerSize {
  int64_t inputs = 0;   ///< feature maps
  int64_t outputs = 0;  ///< feature maps
  int64_t kernel = 1;   ///< k, of k × k
  int64_t side = 1;     ///< of the input
};

/// Data-parallel: 4·in·out·k²·(2 − ov). `overlap`: how far sending and receiving go at the same
/// time, 0 to 1.
double data_parallel_bytes(const LayerSize& layer, double overlap);
/// Model-parallel: 8·in·side²·batch.
double model_parallel_bytes(const LayerSize& layer, int64_t batch);
/// `copies` teams of N/copies workers with a copy of the layer each:
/// 8·in·side²·batch/G + 4·in·out·k²·(2 − ov)·G/N, the second term 0 for one copy.
double hybrid_bytes(const LayerSize& layer, int64_t batch, int workers, int copies, double overlap);
/// √(2·N·batch·side²/(out·k²·(2 − ov))), where the hybrid's bytes are least, if it needed to be no
/// whole number.
double ideal_copies(const LayerSize& layer, int64_t batch, int workers, double overlap);
/// The divisor of N with the least bytes; 1 is model-parallel, N is data-parallel.
int best_copies(const LayerSize& layer, int64_t batch, int workers, double overlap);

// ---- Omnivore: hardware efficiency of groups with a merged classifier

struct GroupTimes {
  Seconds computing;   ///< of a batch, all but the classifier, by one worker: t_cc
  Seconds network;     ///< to bring one worker's gradients to the servers and weights back: t_nc
  Seconds classifier;  ///< of a batch, where it is merged: t_fc
};

/// max(t_cc/k, k·t_nc): k workers of a group compute together, and share the way to the servers.
Seconds group_step(const GroupTimes& times, int workers);
/// Seconds per update with g groups of N/g: max(t_fc, (group_step(N/g) + t_fc)/g).
Seconds update_time(const GroupTimes& times, int workers, int groups);

}  // namespace convoy::plan
