#pragma once
// Workers that are slower at times, for simulations: by chance, or as records of real machines have
// it.
//
//   0.2        every worker's time varies from step to step: log-normal, by a fifth
//   0.05:10    in a step, one worker of twenty takes ten times as long
//   TRACE      what sync::Replay reads: constant:1,0.5, steps:20-60, load-ahead, or a file
//
// What is drawn anew in every step nobody can foresee. A trace goes on from step to step, so that
// shares can follow it, as they do in a training (sync::Balancer).

#include <cstdint>
#include <functional>
#include <string>

#include "convoy/sync/predict/predictor.hpp"

namespace convoy::plan {

/// The factor of worker `worker`'s time in its step `step`.
using Slowdown = std::function<double(int worker, int64_t step)>;

struct Stragglers {
  Slowdown slowdown;  ///< null: nobody is
  /// What is visible of a worker's machine before a step; null: nothing, and shares stay as they
  /// are.
  std::function<sync::Load(int worker, int64_t step)> load;
  std::string predictor = "auto";  ///< of speeds, as sync.predictor
  std::string description;         ///< "times vary by 20 %"
};

/// Throws InputError with what would be right.
Stragglers read_stragglers(const std::string& text, int workers, uint64_t seed);

/// Log-normal of mean 1: the same for the same arguments.
double random_factor(double spread, uint64_t seed, int worker, int64_t step);

}  // namespace convoy::plan
