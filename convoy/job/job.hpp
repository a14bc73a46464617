#pragma once
// A job: what the user asks for, as plain values. convoy/job/fields.hpp holds the one table that
// says how each of them is written in YAML, checked, documented and printed.
// Other folders take the section that concerns them (job::Data, job::Train, …) as their options.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <yaml-cpp/yaml.h>

#include "convoy/base/units.hpp"

namespace convoy::job {

struct Augment {
  bool flip = false;     ///< mirror left–right with probability ½
  int64_t pad_crop = 0;  ///< pad by this many zero pixels, crop back at a random place
  int64_t cutout = 0;    ///< side of one randomly placed square set to the mean; 0: off
  /// Show a random part of the image: least and largest part of its area; empty: off.
  std::vector<double> crop_area = {};
  std::vector<double> crop_aspect{3.0 / 4, 4.0 / 3};  ///< least and largest width / height of it
  /// Brightness, contrast, saturation: each times 1 − x … 1 + x; empty: off.
  std::vector<double> jitter = {};
  bool operator==(const Augment&) const = default;
};

struct Data {
  std::string kind;  ///< idx | cifar10 | cifar100 | folder | packed | synthetic
  std::string path;
  /// [channels, height, width] of what the network reads: synthetic, folder, packed; empty: as
  /// stored
  std::vector<int64_t> shape;
  int64_t classes = 10;      ///< synthetic
  int64_t size = 1024;       ///< synthetic: samples in the training set
  std::vector<double> mean;  ///< per channel, of values in [0, 1]; empty: measured on the data
  std::vector<double> std;
  Augment augment;
  double center_crop = 0.875;     ///< part of an image's sides that is shown where none is drawn
  int64_t limit = 0;              ///< use only the first so many training samples; 0: all
  int64_t threads = 0;            ///< loader threads; 0: auto
  std::string bad = "stop";       ///< stop | skip: samples that cannot be decoded
  int64_t copies = 0;             ///< of a packed file, in the memory of all workers; 0: auto
  Bytes memory{0};                ///< most memory of a worker for packed samples; 0: auto
  std::string exchange = "auto";  ///< auto | fetch | shuffle: how packed samples travel
  int64_t shuffle_epochs = 1;     ///< shuffle: they change hands every so many epochs
  bool operator==(const Data&) const = default;
};

struct LearningRate {
  double peak = 0.1;
  /// constant | step | multi-step | polynomial | cosine | one-cycle
  std::string schedule = "constant";
  double warmup_epochs = 0;        ///< linear, from 0 to peak; one-cycle: the rising part (0: 30 %)
  double final = 0;                ///< cosine, polynomial, one-cycle: where it ends
  double step_epochs = 30;         ///< step: every so many epochs …
  std::vector<double> milestones;  ///< multi-step: at these epochs …
  double gamma = 0.1;              ///< … multiply by this
  double power = 1;                ///< polynomial
  int64_t base_batch = 0;          ///< linear scaling rule: peak is for this batch; 0: off
  bool operator==(const LearningRate&) const = default;
};

/// Enough for any use of batches, and small enough that no count of bytes overflows.
inline constexpr int64_t kLargestBatch = int64_t{1} << 24;

struct Train {
  int64_t batch = 128;  ///< 0: auto
  double epochs = 10;
  int64_t max_steps = 0;   ///< 0: no limit
  double max_seconds = 0;  ///< written train.max_time ("90s", "2h"); 0: no limit
  uint64_t seed = 1;
  std::string optimizer = "sgd";  ///< sgd | adam | lars
  LearningRate lr;
  double momentum = 0.9;
  bool nesterov = false;
  double weight_decay = 0;
  bool decay_all = true;  ///< false: biases and batch norm are exempt from weight decay
  double beta1 = 0.9;     ///< adam
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double trust = 0.001;  ///< lars: trust coefficient
  double clip_norm = 0;  ///< largest norm of the whole gradient; 0: off
  double label_smoothing = 0;
  double eval_every = 1;        ///< epochs between evaluations; 0: only at the end
  int64_t patience = 0;         ///< stop after so many evaluations without a better one; 0: off
  double target = 0;            ///< stop at an evaluation with this test accuracy; 0: off
  double checkpoint_every = 1;  ///< epochs between checkpoints of "last"; 0: only at the end
  bool operator==(const Train&) const = default;
};

struct Engine {
  int64_t grain = 0;               ///< samples per grain; 0: auto
  int64_t lanes = 0;               ///< 0: one per core
  int64_t threads_per_lane = 0;    ///< 0: auto
  Bytes memory{0};                 ///< most memory the run may take; 0: what the machine has free
  std::string precision = "fast";  ///< exact: no algorithm that rounds more than the definition
  /// auto, the name of an algorithm, or a plan file; see convoy/plan/algorithms.hpp.
  std::string algorithms = "auto";
  bool operator==(const Engine&) const = default;
};

struct Sync {
  /// bsp | balanced | stale | asynchronous | backup (all the same with one worker)
  std::string mode = "balanced";
  std::string predictor = "auto";       ///< of speeds, where shares follow them
  std::string solver = "proportional";  ///< proportional | profile | feedback
  int64_t bound = 3;                    ///< stale: updates that a worker may be ahead
  int64_t backups = 1;                  ///< backup: of the workers, how many are not waited for
  bool reproducible = true;
  std::string allreduce = "auto";  ///< auto | tree | direct | ring | halving | colors
  std::vector<int64_t> shares;     ///< grains of each worker; empty: by the mode
  double deadline = 60;            ///< seconds; the longest wait for another worker
  Bytes bucket{0};                 ///< of gradients that are exchanged together; 0: auto
  bool overlap = true;             ///< false: gradients are exchanged after the backward pass
  bool operator==(const Sync&) const = default;
};

struct Cluster {
  int64_t groups = 1;                  ///< that do not wait for each other; 0: auto
  int64_t servers = 0;                 ///< that own the model where there are groups; 0: auto
  bool own_servers = false;            ///< they are the last ranks, which do nothing else
  std::string momentum = "total";      ///< total | measured, or what servers apply, as a number
  std::string learning_rate = "same";  ///< same | scaled: by the number of groups
  bool tolerate = false;               ///< without a group that has died the others go on
  bool operator==(const Cluster&) const = default;
};

struct Parallel {
  std::string classifier = "data";  ///< data | model | hybrid | merged | auto
  int64_t layers = 0;               ///< of the linear layers at the end, the last ones; 0: all
  int64_t copies = 2;               ///< hybrid
  bool operator==(const Parallel&) const = default;
};

struct Job {
  YAML::Node model;  ///< zoo name or graph, see convoy/model/yaml.hpp
  Data data;
  Train train;
  Engine engine;
  Sync sync;
  Cluster cluster;
  Parallel parallel;
  std::string file;  ///< where it was read from, for messages
};

}  // namespace convoy::job
