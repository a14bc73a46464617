#pragma once
// Learning-rate schedules. All of them are pure functions of the step.

#include <cstdint>

#include "convoy/job/job.hpp"

namespace convoy::optim {

/// What a schedule needs to know about the training besides job::LearningRate.
struct ScheduleContext {
  double steps_per_epoch = 1;
  double total_steps = 1;
  int64_t batch = 1;
};

/// Learning rate of step `step` (0, 1, …). With t = step/total and w the warm-up steps:
///   warm-up     peak·(step+1)/w                          while step < w
///   constant    peak
///   step        peak·γ^⌊epoch/step_epochs⌋
///   multi-step  peak·γ^(number of milestones passed)
///   polynomial  final + (peak−final)·(1−t')^power        t' = (step−w)/(total−w)
///   cosine      final + (peak−final)·(1+cos πt')/2
///   one-cycle   rises linearly from peak/25 to peak over the warm-up (30 % of the steps if none is
///               given), then falls by the cosine to `final`
/// With base_batch b > 0, peak (and final) are multiplied by batch/b (Goyal et al. 2017).
double learning_rate(const job::LearningRate& options, const ScheduleContext& context,
                     int64_t step);

/// The context of a training on `samples` samples.
ScheduleContext schedule_context(const job::Train& train, int64_t samples);

/// Throws InputError for a schedule that cannot work (warm-up longer than training, …).
void check(const job::LearningRate& options, const ScheduleContext& context);

}  // namespace convoy::optim
