#include "convoy/data/pack.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string_view>
#include <thread>

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>

#include "convoy/base/error.hpp"
#include "convoy/base/text.hpp"
#include "convoy/base/units.hpp"
#include "convoy/data/folder.hpp"
#include "convoy/data/packed_format.hpp"
#include "convoy/data/readers.hpp"
#include "convoy/data/resample.hpp"

namespace convoy::data {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMaxFile = int64_t{1} << 30;  // bytes of an image file

// ---- sources ------------------------------------------------------------------------------------

struct RawSet {
  const char* kind;
  TrainTest (*read)(const fs::path& folder);
  std::vector<const char*> files;  // that tell it; in the folder or one of its sub-folders
};
const std::vector<RawSet>& raw_sets() {
  static const std::vector<RawSet> sets = {
      {"idx",
       read_idx,
       {"train-images-idx3-ubyte", "train-images-idx3-ubyte.gz", "train-images.idx3-ubyte",
        "train-images.idx3-ubyte.gz"}},
      {"cifar10", read_cifar10, {"data_batch_1.bin", "cifar-10-batches-bin/data_batch_1.bin"}},
      {"cifar100", read_cifar100, {"train.bin", "cifar-100-binary/train.bin"}},
  };
  return sets;
}

std::string kind_of(const PackOptions& options) {
  std::vector<std::string> kinds{"folder"};
  for (const RawSet& set : raw_sets()) kinds.emplace_back(set.kind);
  if (!options.kind.empty()) {
    if (std::find(kinds.begin(), kinds.end(), options.kind) != kinds.end()) return options.kind;
    const std::string near = nearest(options.kind, kinds);
    refuse("there is no kind '{}'{}; known are {}", options.kind,
           near.empty() ? "" : "; did you mean '" + near + "'?", join(kinds));
  }
  for (const RawSet& set : raw_sets()) {
    for (const char* file : set.files) {
      if (fs::exists(options.source / file)) return set.kind;
    }
  }
  return "folder";
}

/// Collects what the records depend on.
class Key {
 public:
  void add(std::string_view text) { words_.put_text(text); }
  void add(int64_t number) { words_.put(number); }
  void add_bytes(std::span<const uint8_t> bytes) { words_.put(checksum(bytes)); }
  uint64_t value() const { return format::hash(words_.bytes()); }

 private:
  format::Writer words_;
};

// ---- one image ----------------------------------------------------------------------------------

/// What becomes of a file: a record, or a complaint.
struct Made {
  std::vector<std::byte> bytes;
  ImageInfo image;
  ImageMoments moments;
  std::optional<LeftOut> bad;
  std::exception_ptr error;  // nothing that has to do with this image
};

/// A file that is closed at the end.
struct Descriptor {
  explicit Descriptor(const fs::path& path) : fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {}
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  const int fd;
};

void read_whole(const fs::path& path, std::vector<std::byte>& bytes) {
  const auto unreadable = [](const char* what) {
    throw ImageError(BadImage::unreadable, fmt::format("{}: {}", what, std::strerror(errno)));
  };
  const Descriptor file(path);
  struct stat status {};
  if (file.fd < 0 || ::fstat(file.fd, &status) != 0) unreadable("cannot be opened");
  if (status.st_size > kMaxFile) {
    throw ImageError(BadImage::too_large, fmt::format("has {} bytes, the most accepted is {}",
                                                      status.st_size, kMaxFile));
  }
  bytes.resize(static_cast<size_t>(status.st_size));
  size_t at = 0;
  while (at < bytes.size()) {
    const ssize_t got = ::read(file.fd, bytes.data() + at, bytes.size() - at);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) unreadable("cannot be read");
    if (got == 0) break;
    at += static_cast<size_t>(got);
  }
  bytes.resize(at);
}

/// The work of one thread.
class ImageMaker {
 public:
  ImageMaker(int resize, int quality) : resize_(resize), quality_(quality) {}

  void make(const fs::path& path, Made& made) {
    read_whole(path, made.bytes);
    made.image = probe(made.bytes);
    const int32_t side = std::min(made.image.width, made.image.height);
    if (resize_ == 0 || side <= resize_) {
      made.moments = measure(decoder_.decode(made.bytes, made.image.channels).pixels);
    } else {
      reduce(made, static_cast<double>(resize_) / side);
    }
  }

 private:
  void reduce(Made& made, double scale) {
    const auto extent = [&](int32_t pixels) {
      return std::max(resize_, static_cast<int32_t>(std::lround(pixels * scale)));
    };
    const Size size{.height = extent(made.image.height), .width = extent(made.image.width)};
    const auto channels = static_cast<size_t>(made.image.channels);
    const auto plane = static_cast<size_t>(size.height) * static_cast<size_t>(size.width);
    planes_.resize(channels * plane);
    pixels_.resize(channels * plane);
    // Half a step more, so that cutting off the fraction rounds.
    const Affine rounding{.shift = {0.5F, 0.5F, 0.5F}};
    resampler_.resample(decoder_.decode(made.bytes, size, made.image.channels), size, false,
                        rounding, planes_);
    for (size_t i = 0; i < plane; ++i) {
      for (size_t c = 0; c < channels; ++c) {
        const float value = std::clamp(planes_[c * plane + i], 0.0F, 255.0F);
        pixels_[i * channels + c] = static_cast<uint8_t>(value);
      }
    }
    const Pixels reduced{.bytes = pixels_,
                         .width = size.width,
                         .height = size.height,
                         .channels = made.image.channels};
    made.moments = measure(reduced);
    made.bytes = encode_jpeg(reduced, quality_);
    made.image = {.encoding = Encoding::jpeg,
                  .width = size.width,
                  .height = size.height,
                  .channels = reduced.channels};
  }

  int resize_;
  int quality_;
  Decoder decoder_;
  Resampler resampler_;
  std::vector<float> planes_;
  std::vector<uint8_t> pixels_;
};

// ---- many images --------------------------------------------------------------------------------

/// Threads that make images ahead of the one who writes them, who takes them in order. At most
/// four for each thread are held, so memory is bounded whatever is slow.
class Makers {
 public:
  Makers(const PackOptions& options, const std::vector<FoundImage>& images, int64_t first)
      : options_(options),
        images_(images),
        next_(first),
        taken_(first),
        slots_(4 * static_cast<size_t>(options.threads)) {
    for (int i = 0; i < options.threads; ++i) threads_.emplace_back([this] { work(); });
  }
  ~Makers() {
    {
      const std::lock_guard lock(mutex_);
      stopped_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }
  Makers(const Makers&) = delete;
  Makers& operator=(const Makers&) = delete;

  /// The next image; nothing if packing is to stop.
  std::optional<Made> take() {
    std::unique_lock lock(mutex_);
    Slot& slot = slot_of(taken_);
    // A signal does not wake a waiting thread, so look from time to time.
    while (!slot.ready) {
      if (options_.stop != nullptr && *options_.stop != 0) return {};
      changed_.wait_for(lock, std::chrono::milliseconds(100));
    }
    if (options_.stop != nullptr && *options_.stop != 0) return {};
    Made made = std::move(slot.made);
    slot.made = {};
    slot.ready = false;
    ++taken_;
    lock.unlock();
    changed_.notify_all();
    if (made.error) std::rethrow_exception(made.error);
    return made;
  }

 private:
  struct Slot {
    bool ready = false;
    Made made;
  };
  Slot& slot_of(int64_t image) { return slots_[static_cast<size_t>(image) % slots_.size()]; }

  void work() {
    ImageMaker maker(options_.resize, options_.quality);
    const auto count = static_cast<int64_t>(images_.size());
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] {
        return stopped_ || next_ >= count || next_ < taken_ + static_cast<int64_t>(slots_.size());
      });
      if (stopped_ || next_ >= count) return;
      const int64_t mine = next_++;
      lock.unlock();
      Made made = make(maker, images_[static_cast<size_t>(mine)]);
      lock.lock();
      Slot& slot = slot_of(mine);
      slot.made = std::move(made);
      slot.ready = true;
      changed_.notify_all();
    }
  }

  Made make(ImageMaker& maker, const FoundImage& image) const {
    Made made;
    try {
      maker.make(options_.source / image.path, made);
    } catch (const ImageError& error) {
      made.bad =
          LeftOut{.source = image.path, .what = error.what_is_wrong(), .message = error.what()};
    } catch (...) {
      made.error = std::current_exception();
    }
    return made;
  }

  const PackOptions& options_;
  const std::vector<FoundImage>& images_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int64_t next_;
  int64_t taken_;
  bool stopped_ = false;
  std::vector<Slot> slots_;
  std::vector<std::thread> threads_;
};

// ---- packing ------------------------------------------------------------------------------------

/// Tells how far it is, and whether to stop.
class Sitting {
 public:
  Sitting(const PackOptions& options, PackedWriter& writer, PackReport& report)
      : options_(options), writer_(writer), report_(report) {
    report_.taken_up = writer.items();
    tell();
  }
  bool stops() const { return options_.stop != nullptr && *options_.stop != 0; }
  void tell() const {
    if (!options_.progress) return;
    options_.progress({.done = writer_.items(),
                       .total = report_.total,
                       .bad = static_cast<int64_t>(writer_.left_out().size())});
  }
  /// Makes the file whole, if that is what is wanted.
  void end() {
    report_.records = writer_.records();
    report_.bad = writer_.left_out();
    if (writer_.items() < report_.total) {
      report_.ending = PackEnding::stopped;
    } else if (!report_.bad.empty() && !options_.skip_bad) {
      report_.ending = PackEnding::bad;
    } else {
      writer_.finish();
      report_.ending = PackEnding::finished;
    }
  }

 private:
  const PackOptions& options_;
  PackedWriter& writer_;
  PackReport& report_;
};

uint64_t key_of(const PackOptions& options, const FolderImages& found) {
  Key key;
  key.add("folder");
  key.add(options.resize);
  if (options.resize > 0) key.add(options.quality);
  for (const std::string& name : found.classes) key.add(name);
  for (const auto* images : {&found.train, &found.test}) {
    key.add(static_cast<int64_t>(images->size()));
    for (const FoundImage& image : *images) {
      key.add(image.path);
      key.add(image.label);
      struct stat status {};
      const bool known = ::stat((options.source / image.path).c_str(), &status) == 0;
      key.add(known ? status.st_size : -1);
      key.add(known ? status.st_mtim.tv_sec : -1);
      key.add(known ? status.st_mtim.tv_nsec : -1);
    }
  }
  return key.value();
}

void pack_folder(const PackOptions& options, PackReport& report) {
  FolderImages found = find_images(options.source, options.test_part);
  report.others = std::move(found.others);
  const uint64_t key = key_of(options, found);
  std::vector<Split> splits{
      {.name = "train", .first = 0, .count = static_cast<int64_t>(found.train.size())},
      {.name = "test", .first = 0, .count = static_cast<int64_t>(found.test.size())}};
  std::vector<FoundImage> images = std::move(found.train);
  images.insert(images.end(), found.test.begin(), found.test.end());
  report.total = static_cast<int64_t>(images.size());

  PackedWriter writer(options.to, key, std::move(found.classes), std::move(splits));
  Sitting sitting(options, writer, report);
  Makers makers(options, images, writer.items());
  while (writer.items() < report.total) {
    const std::optional<Made> made = makers.take();
    if (!made) break;
    const FoundImage& image = images[static_cast<size_t>(writer.items())];
    if (made->bad) {
      writer.leave_out(*made->bad);
    } else {
      writer.append({.bytes = made->bytes,
                     .image = made->image,
                     .label = image.label,
                     .source = image.path,
                     .moments = made->moments});
    }
    sitting.tell();
  }
  sitting.end();
}

std::vector<std::string> class_names(const std::string& kind, int64_t classes) {
  if (kind == "cifar10") {
    return {"airplane", "automobile", "bird",  "cat",  "deer",
            "dog",      "frog",       "horse", "ship", "truck"};
  }
  std::vector<std::string> names;
  for (int64_t i = 0; i < classes; ++i) names.push_back(std::to_string(i));
  return names;
}

void pack_raw(const PackOptions& options, const RawSet& set, PackReport& report) {
  if (!fs::is_directory(options.source)) refuse("{}: is not a folder", options.source.string());
  const TrainTest sets = set.read(options.source);
  Key key;
  key.add(set.kind);
  std::vector<Split> splits;
  for (const auto& [name, samples] : {std::pair{"train", &*sets.train}, {"test", &*sets.test}}) {
    splits.push_back({.name = name, .first = report.total, .count = samples->size()});
    report.total += samples->size();
    key.add(samples->size());
    for (int64_t i = 0; i < samples->size(); ++i) {
      key.add(samples->label(i));
      key.add_bytes(samples->pixels(i));
    }
  }
  PackedWriter writer(options.to, key.value(), class_names(set.kind, sets.train->classes()),
                      splits);
  Sitting sitting(options, writer, report);
  while (writer.items() < report.total && !sitting.stops()) {
    const bool training = writer.items() < splits[0].count;
    const Dataset& samples = training ? *sets.train : *sets.test;
    const int64_t i = writer.items() - (training ? 0 : splits[0].count);
    const model::Shape shape = samples.shape();
    const auto pixels = samples.pixels(i);
    const auto channels = static_cast<int32_t>(shape.channels);
    writer.append({.bytes = std::as_bytes(pixels),
                   .image = {.encoding = Encoding::raw,
                             .width = static_cast<int32_t>(shape.width),
                             .height = static_cast<int32_t>(shape.height),
                             .channels = channels},
                   .label = samples.label(i),
                   .source = fmt::format("{}/{}", training ? "train" : "test", i),
                   .moments = measure_planes(pixels, channels)});
    sitting.tell();
  }
  sitting.end();
}

}  // namespace

PackReport pack(const PackOptions& options) {
  check(options.threads >= 1, "there is a thread to pack with");
  if (options.resize < 0 || options.resize > kMaxExtent) {
    refuse("the side to reduce images to must lie between 1 and {}, found {}", kMaxExtent,
           options.resize);
  }
  if (options.quality < 1 || options.quality > 100) {
    refuse("the quality of JPEG must lie between 1 and 100, found {}", options.quality);
  }
  PackReport report;
  report.kind = kind_of(options);
  const auto set = std::find_if(raw_sets().begin(), raw_sets().end(),
                                [&](const RawSet& raw) { return raw.kind == report.kind; });
  if (set == raw_sets().end()) {
    pack_folder(options, report);
  } else if (options.resize > 0) {
    refuse("only image folders can be reduced while packing; {} is of kind {}",
           options.source.string(), report.kind);
  } else {
    pack_raw(options, *set, report);
  }
  return report;
}

fs::path packed_path(const fs::path& folder) {
  fs::path file = folder.lexically_normal();
  if (!file.has_filename()) file = file.parent_path();
  file += ".pack";
  return file;
}

namespace {

/// What is in a folder and not in the file that it was packed into, and the other way round.
std::string what_changed(const PackedFile& file, const fs::path& folder) {
  const FolderImages found = find_images(folder);
  std::set<std::string_view> packed;
  for (int64_t i = 0; i < file.size(); ++i) packed.insert(file.record(i).source);
  int64_t fresh = 0;
  for (const std::vector<FoundImage>* images : {&found.train, &found.test}) {
    for (const FoundImage& image : *images) fresh += packed.erase(image.path) > 0 ? 0 : 1;
  }
  if (fresh == 0 && packed.empty()) return "";
  return fmt::format(
      "{} was packed from other images: {} in {} are not in it (new, or left out as bad), and {} "
      "of it are gone; to pack anew, remove it",
      file.path().string(), fresh, folder.string(), packed.size());
}

}  // namespace

std::string pack_first(const job::Data& options, int threads, const std::atomic<int>* stop,
                       const std::function<void(const PackStanding&)>& progress) {
  const fs::path folder = options.path;
  const fs::path file = packed_path(folder);
  if (fs::exists(file)) return what_changed(PackedFile(file), folder);
  if (!fs::is_directory(folder)) refuse("data.path: {} is not a folder", options.path);
  PackOptions packing;
  packing.source = folder;
  packing.to = file;
  packing.kind = "folder";
  packing.threads = threads;
  packing.skip_bad = options.bad == "skip";
  packing.stop = stop;
  packing.progress = progress;
  const PackReport report = pack(packing);
  std::string bad;
  constexpr size_t kShown = 10;
  for (size_t i = 0; i < std::min(report.bad.size(), kShown); ++i) {
    bad += fmt::format("\n  {}: {}", report.bad[i].source, report.bad[i].message);
  }
  if (report.bad.size() > kShown) bad += fmt::format("\n  and {} more", report.bad.size() - kShown);
  switch (report.ending) {
    case PackEnding::finished:
      return report.bad.empty()
                 ? ""
                 : fmt::format("{} left out:{}",
                               plural(static_cast<int64_t>(report.bad.size()), "bad image"), bad);
    case PackEnding::stopped:
      fail("stopped while packing {}; the same command goes on", folder.string());
    case PackEnding::bad:
      refuse("{}: {}; mend or remove them, or set data.bad: skip{}", folder.string(),
             plural(static_cast<int64_t>(report.bad.size()), "bad image"), bad);
  }
  return "";
}

std::string describe(const PackedFile& file) {
  const PackedSummary& s = file.summary();
  std::map<std::string, int64_t> encodings;
  Size least{.height = INT32_MAX, .width = INT32_MAX};
  Size most;
  int64_t gray = 0;
  for (int64_t i = 0; i < file.size(); ++i) {
    const ImageInfo image = file.record(i).image;
    ++encodings[to_string(image.encoding)];
    gray += image.channels == 1 ? 1 : 0;
    least = {std::min(least.height, image.height), std::min(least.width, image.width)};
    most = {std::max(most.height, image.height), std::max(most.width, image.width)};
  }
  std::vector<std::string> kinds;
  kinds.reserve(encodings.size());
  for (const auto& [name, count] : encodings) kinds.push_back(fmt::format("{} {}", count, name));
  std::string text = fmt::format("file         {}: {}, fingerprint {:016x}\n", file.path().string(),
                                 to_string(Bytes{file.bytes()}), file.fingerprint());
  for (const Split& split : s.splits) {
    text += fmt::format("{:<12} {}\n", split.name, plural(split.count, "image"));
  }
  text += fmt::format("images       {}; {}×{} to {}×{} pixels (width×height); {} gray\n",
                      join(kinds), least.width, least.height, most.width, most.height, gray);
  text += fmt::format("mean, std    {:.4f}; {:.4f} ({} of {})\n", fmt::join(s.mean, " "),
                      fmt::join(s.std, " "), plural(s.channels, "channel"),
                      s.splits.empty() ? "nothing" : s.splits.front().name);
  constexpr size_t kShown = 20;
  const std::vector<std::string> shown(
      s.classes.begin(),
      s.classes.begin() + static_cast<ptrdiff_t>(std::min(kShown, s.classes.size())));
  text += fmt::format("classes      {}: {}{}\n", s.classes.size(), join(shown),
                      shown.size() < s.classes.size() ? ", …" : "");
  return text;
}

std::vector<std::string> verify_all(const PackedFile& file,
                                    const std::function<void(const PackStanding&)>& progress) {
  std::vector<std::string> damaged;
  for (int64_t i = 0; i < file.size(); ++i) {
    try {
      file.verify(i);
    } catch (const InputError& error) {
      damaged.emplace_back(error.what());
    }
    if (progress) {
      progress({.done = i + 1, .total = file.size(), .bad = static_cast<int64_t>(damaged.size())});
    }
  }
  return damaged;
}

}  // namespace convoy::data
