#pragma once
// Packs a data set into one file (packed.hpp): `convoy pack` is a thin front of this.

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "convoy/data/packed.hpp"
#include "convoy/data/packed_writer.hpp"
#include "convoy/job/job.hpp"

namespace convoy::data {

/// How far packing is.
struct PackStanding {
  int64_t done = 0;   ///< images dealt with, those of earlier sittings included
  int64_t total = 0;  ///< images in all
  int64_t bad = 0;    ///< of them, found bad
};

struct PackOptions {
  std::filesystem::path source;
  std::filesystem::path to;
  std::string kind;        ///< folder, idx, cifar10 or cifar100; "": what it looks like
  int resize = 0;          ///< longest short side; larger images are reduced to it; 0: leave all
  int quality = 90;        ///< of JPEG, for images that were reduced
  double test_part = 0.1;  ///< of image folders without a test set
  int threads = 1;
  bool skip_bad = false;  ///< leave bad images out; else a file with bad ones is not finished
  const std::atomic<int>* stop = nullptr;  ///< when it is not 0, packing ends at the next image
  std::function<void(const PackStanding&)> progress;  ///< called after every image
};

enum class PackEnding {
  finished,  ///< the file is there
  bad,       ///< all were looked at, but some are bad and skip_bad is off: the file is not there
  stopped,   ///< by `stop`: the same call goes on
};

struct PackReport {
  PackEnding ending = PackEnding::finished;
  std::string kind;
  int64_t total = 0;
  int64_t taken_up = 0;  ///< of them, dealt with in earlier sittings
  int64_t records = 0;
  std::vector<LeftOut> bad;
  std::vector<std::string> others;  ///< files of an image folder that are not named like images
};

/// Every image is read and decoded to its last byte, so that what is bad is found now. Records have
/// the order of the source, whatever the number of threads, and the file is the same byte for byte
/// also if it took several sittings (see PackedWriter). Refuses a file that exists. After
/// PackEnding::bad, the same call with skip_bad only has to finish. Throws InputError for a source
/// that cannot be used at all.
PackReport pack(const PackOptions& options);

/// Where the first training on a folder of images packs it to: FOLDER.pack, beside it.
std::filesystem::path packed_path(const std::filesystem::path& folder);

/// Packs a folder of images to packed_path() if that has not been done. Returns a line for the user
/// if the folder has other images than the file, else "". Throws InputError that names bad images
/// unless `options.bad` is skip.
std::string pack_first(const job::Data& options, int threads, const std::atomic<int>* stop,
                       const std::function<void(const PackStanding&)>& progress);

/// What a packed file holds, for people.
std::string describe(const PackedFile& file);

/// Reads every record and checks its checksum; the messages about those that are damaged.
std::vector<std::string> verify_all(const PackedFile& file,
                                    const std::function<void(const PackStanding&)>& progress = {});

}  // namespace convoy::data
