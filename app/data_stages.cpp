#include "app/data_stages.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <functional>
#include <memory>
#include <numeric>
#include <thread>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "convoy/base/error.hpp"
#include "convoy/base/memory.hpp"
#include "convoy/data/loader.hpp"
#include "convoy/data/prepare.hpp"
#include "convoy/data/store.hpp"

namespace convoy::app {
namespace {

constexpr int kTurns = 3;
constexpr uint64_t kSeed = 1;
/// More than any cache has; beyond it nothing new is learnt.
constexpr int64_t kMostBytes = int64_t{1} << 30;

/// Of all threads of the process: while a stage runs, nothing else does.
double cpu_seconds() {
  timespec t{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

/// Measures `work`, which adds to the images and bytes of the pace.
template <class Work>
Pace timed(const Work& work) {
  Pace pace;
  const double cpu = cpu_seconds();
  const Seconds begin = now();
  work(pace);
  pace.seconds = (now() - begin).value;
  pace.cpu = cpu_seconds() - cpu;
  return pace;
}

/// What one thread does with the sample at a position of the training stream.
using Work = std::function<void(int64_t position, Pace& pace)>;

/// `threads` threads, each with work of its own, until the time is over.
Pace on_threads(int threads, Seconds budget, const std::function<Work()>& make) {
  std::vector<Pace> parts(static_cast<size_t>(threads));
  std::vector<std::exception_ptr> errors(parts.size());
  std::vector<Work> works;
  works.reserve(parts.size());
  for (int i = 0; i < threads; ++i) works.push_back(make());
  std::atomic<int64_t> next{0};
  Pace pace = timed([&](Pace& /*all*/) {
    const Seconds end = now() + budget;
    std::vector<std::jthread> running;
    for (size_t i = 0; i < parts.size(); ++i) {
      running.emplace_back([&, i] {
        try {
          do {
            works[i](next++, parts[i]);
          } while (now() < end);
        } catch (...) {
          errors[i] = std::current_exception();
        }
      });
    }
  });
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
  for (const Pace& part : parts) {
    pace.images += part.images;
    pace.in += part.in;
    pace.out += part.out;
  }
  return pace;
}

// ---- reading

/// A file as the system sees it.
class File {
 public:
  explicit File(const std::filesystem::path& path)
      : fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)),
        bytes_(static_cast<int64_t>(std::filesystem::file_size(path))) {
    if (fd_ < 0) refuse("cannot open {}: {}", path.string(), std::strerror(errno));
  }
  ~File() { ::close(fd_); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  /// How much of it is in memory, from 0 to 1.
  double cached() const {
    const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
    const auto bytes = static_cast<size_t>(bytes_);
    void* const at = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd_, 0);
    if (at == MAP_FAILED) fail("cannot map a file: {}", std::strerror(errno));
    std::vector<unsigned char> pages((bytes + page - 1) / page);
    const bool known = ::mincore(at, bytes, pages.data()) == 0;
    ::munmap(at, bytes);
    if (!known) fail("cannot ask what is cached: {}", std::strerror(errno));
    const auto here = std::ranges::count_if(pages, [](unsigned char p) { return (p & 1U) != 0; });
    return static_cast<double>(here) / static_cast<double>(pages.size());
  }

  /// Asks the system to forget it, which it need not do.
  void forget() const {
    ::fdatasync(fd_);  // what is not yet on disk cannot be forgotten
    ::posix_fadvise(fd_, 0, 0, POSIX_FADV_DONTNEED);
  }

  /// The bytes from `offset` on, one piece after the other: into the same room, which stays in the
  /// cache, or, to keep them, into memory that the system has to find first.
  Pace read(int64_t offset, int64_t bytes, bool keep) const {
    constexpr int64_t kPiece = 1 << 20;
    return timed([&](Pace& pace) {
      const auto room =
          std::make_unique_for_overwrite<std::byte[]>(static_cast<size_t>(keep ? bytes : kPiece));
      while (pace.out < bytes) {
        std::byte* const to = room.get() + (keep ? pace.out : 0);
        const auto piece = static_cast<size_t>(std::min(kPiece, bytes - pace.out));
        const ssize_t got = ::pread(fd_, to, piece, offset + pace.out);
        if (got <= 0) fail("cannot read: {}", got < 0 ? std::strerror(errno) : "early end");
        pace.out += got;
      }
      pace.in = pace.out;
    });
  }

 private:
  int fd_;
  int64_t bytes_;
};

Pace read_records(const data::Source& source, int threads) {
  data::HeldRecords held(source.packed.file, source.packed.first, source.train->size());
  std::vector<int64_t> all(static_cast<size_t>(source.train->size()));
  std::iota(all.begin(), all.end(), int64_t{0});
  return timed([&](Pace& pace) {
    held.read(all, {.threads = threads, .skip_bad = false, .progress = {}});
    pace.images = source.train->size();
    pace.in = pace.out = held.bytes().value;
  });
}

// ---- preparing

Pace copy(int threads, Seconds budget) {
  constexpr int64_t kBlock = int64_t{32} << 20;  // beyond caches
  return on_threads(threads, budget, [] {
    const auto from = std::make_shared<AlignedBuffer>(Bytes{kBlock});
    const auto to = std::make_shared<AlignedBuffer>(Bytes{kBlock});
    std::ranges::fill(from->bytes(), std::byte{1});
    std::ranges::fill(to->bytes(), std::byte{2});
    return [=](int64_t /*position*/, Pace& pace) {
      std::memcpy(to->bytes().data(), from->bytes().data(), static_cast<size_t>(kBlock));
      pace.in += kBlock;
      pace.out += kBlock;
    };
  });
}

Pace decode(const data::Source& source, int threads, Seconds budget) {
  return on_threads(threads, budget, [&source] {
    const auto decoder = std::make_shared<data::Decoder>();
    return [&source, decoder](int64_t position, Pace& pace) {
      const data::Dataset& set = *source.train;
      const data::Stored stored = set.sample(data::stream_at(position, set.size(), kSeed).sample);
      const data::ImageInfo& image = stored.image;
      const auto channels = static_cast<int>(set.shape().channels);
      const data::Decoded decoded =
          image.encoding == data::Encoding::raw
              ? decoder->decode_raw(stored.bytes, image,
                                    {.width = image.width, .height = image.height}, channels)
              : decoder->decode(stored.bytes, channels);
      ++pace.images;
      pace.in += static_cast<int64_t>(stored.bytes.size());
      pace.out += static_cast<int64_t>(decoded.pixels.bytes.size());
    };
  });
}

Pace prepare(const data::Source& source, const job::Augment& augment, int threads, Seconds budget) {
  return on_threads(threads, budget, [&] {
    const model::Shape shape = source.train->shape();
    const auto preparer = std::make_shared<data::Preparer>(source, shape, &augment);
    const auto out = std::make_shared<std::vector<float>>(static_cast<size_t>(shape.size()));
    return [&source, preparer, out](int64_t position, Pace& pace) {
      const data::StreamSample which = data::stream_at(position, source.train->size(), kSeed);
      const data::Stored stored = source.train->sample(which.sample);
      preparer->prepare(stored, which, kSeed, *out);
      ++pace.images;
      pace.in += static_cast<int64_t>(stored.bytes.size());
      pace.out += static_cast<int64_t>(out->size() * sizeof(float));
    };
  });
}

/// A batch of a few grains for each thread.
data::LoaderOptions loader_options(int threads) {
  data::LoaderOptions options;
  options.grain = 8;
  options.batch = options.grain * 2 * threads;
  options.seed = kSeed;
  options.threads = threads;
  return options;
}

/// From memory, as training does it, with every record checked.
Pace load(const data::Source& source, const job::Augment& augment, int threads, Seconds budget) {
  data::LoaderOptions options = loader_options(threads);
  options.augment = &augment;
  data::StoreOptions storing;
  storing.samples = source.train->size();
  storing.batch = options.batch;
  storing.grain = options.grain;
  storing.seed = kSeed;
  data::Store store(source.packed.file, source.packed.first, nullptr, storing);
  options.feed = &store;
  data::TrainLoader loader(source, options);
  const int64_t grains = options.batch / options.grain;
  const auto take_batch = [&](int64_t step, Pace& pace) {
    for (int64_t grain = 0; grain < grains; ++grain) {
      pace.images += loader.get(step, grain).count;
      loader.release(step, grain);
    }
  };
  int64_t step = 0;
  Pace warm_up;
  take_batch(step++, warm_up);
  Pace pace = timed([&](Pace& p) {
    const Seconds end = now() + budget;
    do {
      take_batch(step++, p);
    } while (now() < end);
  });
  const double mean =
      static_cast<double>(store.held().value) / static_cast<double>(source.train->size());
  pace.in = static_cast<int64_t>(mean * static_cast<double>(pace.images));
  pace.out = pace.images * source.train->shape().size() * static_cast<int64_t>(sizeof(float));
  return pace;
}

// ---- all of them

/// A stage and how to run it once.
struct Runnable {
  Stage stage;
  std::function<Pace()> run;
};

Pace median(std::vector<Pace> paces) {
  const auto middle = paces.begin() + static_cast<ptrdiff_t>(paces.size() / 2);
  const auto rate = [](const Pace& p) { return static_cast<double>(p.out) / p.cpu; };
  std::nth_element(paces.begin(), middle, paces.end(),
                   [&](const Pace& a, const Pace& b) { return rate(a) < rate(b); });
  return *middle;
}

job::Augment usual_augment() {
  job::Augment augment;
  augment.flip = true;
  augment.crop_area = {0.08, 1};  // as in the literature; the aspects are by default
  return augment;
}

/// Of a stage that was measured with several numbers of threads, the same one counts.
void set_bounds(std::vector<Stage>& stages) {
  for (Stage& stage : stages) {
    for (const Stage& other : stages) {
      if (other.name != stage.bound) continue;
      if (stage.bound_speed == 0 || other.threads == stage.threads) {
        stage.bound_speed = other.speed();
      }
    }
  }
}

}  // namespace

data::Source open_for_bench(const std::filesystem::path& path, int64_t size) {
  job::Data options;
  options.kind = "packed";
  options.path = path.string();
  const data::PackedFile file(path);
  options.shape = {file.summary().channels, size, size};
  const data::Split& train = file.split("train");
  int64_t bytes = 0;
  while (options.limit < train.count && bytes < kMostBytes) {
    bytes += file.record(train.first + options.limit++).length;
  }
  return data::open(options);
}

StageTable measure_stages(const StageOptions& options) {
  const data::Source source = open_for_bench(options.file, options.size);
  const File file(options.file);
  const data::PackedFile& packed = *source.packed.file;
  const int64_t first = source.packed.first;
  const int64_t offset = packed.record(first).offset;

  StageTable table;
  table.images = source.train->size();
  table.bytes = {packed.length(first, first + table.images)};
  const auto read_file = [&] { return file.read(offset, table.bytes.value, false); };
  const auto keep_file = [&] { return file.read(offset, table.bytes.value, true); };
  const auto read_all = [&] { return read_records(source, options.threads); };
  const auto forgotten = [&](const auto& run) {
    file.forget();
    table.cache.after = std::max(table.cache.after, file.cached());
    return run();
  };

  table.cache.before = file.cached();
  // Once only, and before the file is touched in its mapping, which holds pages fast.
  Stage disk;
  disk.name = "file-cold";
  disk.what = "read the file, forgotten";
  disk.pace = forgotten(read_file);
  Stage cold;
  cold.name = "records-cold";
  cold.what = "read and check";
  cold.threads = options.threads;
  cold.pace = forgotten(read_all);
  cold.bound = disk.name;
  disk.waits = cold.waits = true;
  table.stages = {std::move(disk), std::move(cold)};

  const job::Augment plain = usual_augment();
  job::Augment coloured = plain;
  coloured.jitter = {0.4, 0.4, 0.4};
  std::vector<Runnable> runs;
  const Seconds turn{options.budget.value / kTurns};
  std::vector<int> counts{1};
  if (options.threads > 1) counts.push_back(options.threads);
  const auto add = [&](const char* name, const char* what, const char* bound, int threads,
                       const std::function<Pace()>& run) {
    Stage stage;
    stage.name = name;
    stage.what = what;
    stage.threads = threads;
    stage.bound = bound;
    runs.push_back({std::move(stage), run});
  };
  for (const int n : counts) {
    add("copy", "copy memory", "", n, [=] { return copy(n, turn); });
  }
  add("file", "read the file, cached", "", 1, read_file);
  add("file-kept", "the same into new memory", "", 1, keep_file);
  add("records", "read and check, cached", "file-kept", options.threads, read_all);
  for (const int n : counts) {
    add("decode", "decode whole images", "copy", n, [&, n] { return decode(source, n, turn); });
  }
  for (const int n : counts) {
    add("prepare", "decode to normalise", "copy", n,
        [&, n] { return prepare(source, plain, n, turn); });
  }
  for (const int n : counts) {
    add("jitter", "the same and colours", "copy", n,
        [&, n] { return prepare(source, coloured, n, turn); });
  }
  for (const int n : counts) {
    add("loader", "check and prepare", "copy", n, [&, n] { return load(source, plain, n, turn); });
  }

  std::vector<std::vector<Pace>> paces(runs.size());
  for (int i = 0; i < kTurns; ++i) {
    for (size_t r = 0; r < runs.size(); ++r) paces[r].push_back(runs[r].run());
  }
  for (size_t r = 0; r < runs.size(); ++r) {
    runs[r].stage.pace = median(std::move(paces[r]));
    table.stages.push_back(std::move(runs[r].stage));
  }
  set_bounds(table.stages);
  return table;
}

}  // namespace convoy::app
