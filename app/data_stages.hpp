#pragma once
// The stages of a sample's way from a packed file to a network, each measured beside the bandwidth
// that bounds it: behind `convoy bench data`.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "convoy/base/units.hpp"
#include "convoy/data/dataset.hpp"

namespace convoy::app {

struct StageOptions {
  std::filesystem::path file;  ///< packed
  int64_t size = 224;          ///< of the network's input, both ways
  int threads = 1;
  Seconds budget{1};  ///< for each stage
};

/// What a stage did in some time.
struct Pace {
  double seconds = 0;
  double cpu = 0;      ///< seconds of CPU time, of all threads together
  int64_t images = 0;  ///< 0: the stage does not count in images
  int64_t in = 0;      ///< bytes read, encoded
  int64_t out = 0;     ///< bytes written
};

struct Stage {
  std::string name;
  std::string what;  ///< for people
  int threads = 1;
  Pace pace;           ///< the median of three turns
  bool waits = false;  ///< for a disk, so that its speed is by the clock; else it is by CPU time
  std::string bound;   ///< name of the stage whose speed bounds this one, or ""
  double bound_speed = 0;
  /// Bytes written per second, or per second of CPU time: what other programs run meanwhile on the
  /// same cores then matters little.
  double speed() const { return static_cast<double>(pace.out) / (waits ? pace.seconds : pace.cpu); }
  double of_bound() const { return speed() / bound_speed; }
};

/// How much of a file the system had in memory, from 0 to 1.
struct PageCache {
  double before = 0;
  double after = 0;  ///< after it was asked to forget the file
};

struct StageTable {
  int64_t images = 0;  ///< of the training split, those that are used
  Bytes bytes;         ///< of their records
  PageCache cache;
  std::vector<Stage> stages;
};

/// The first training images of a packed file, at most 1 GiB of them, for a network that reads
/// squares of `size` pixels. Throws InputError.
data::Source open_for_bench(const std::filesystem::path& file, int64_t size);

/// Stages take turns, so that what else the machine does falls on all alike.
StageTable measure_stages(const StageOptions& options);

}  // namespace convoy::app
