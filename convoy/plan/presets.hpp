#pragma once
// Clusters and trainings of the papers, runnable by name. What a paper does not say is assumed,
// once for each cluster and with the reason beside it, never for a single result.

#include <string>
#include <vector>

#include "convoy/plan/cluster.hpp"
#include "convoy/plan/step_model.hpp"

namespace convoy::plan {

/// A published training.
struct PresetRow {
  std::string model;  ///< of the zoo
  int64_t batch = 0;
  int workers = 1;
  double published = 0;  ///< times as fast as one node; 0: the paper gives no number
};

struct Preset {
  std::string name;
  std::string source;  ///< the paper
  Cluster cluster;     ///< its note has the assumptions and their reasons
  std::vector<PresetRow> rows;
  std::string classifier = "auto";  ///< where the linear layers are; auto: where it is fastest
};

const std::vector<Preset>& presets();
/// Throws InputError with the names that there are.
const Preset& preset(const std::string& name);

/// A row, predicted.
struct PresetResult {
  PresetRow row;
  Configuration configuration;  ///< the best for so many workers in one group
  StepForecast one;
  StepForecast several;
  double speedup = 0;
};
std::vector<PresetResult> run(const Preset& preset);

/// Tables for people.
std::string describe(const Preset& preset, const std::vector<PresetResult>& results);
/// Zou17's table of the overhead that is allowed, by efficiency and workers, in percent.
std::string overhead_table();

}  // namespace convoy::plan
