#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "convoy/base/error.hpp"
#include "convoy/base/file.hpp"
#include "convoy/base/text.hpp"
#include "convoy/data/moments.hpp"
#include "convoy/data/readers.hpp"

namespace convoy::data {
namespace {

namespace fs = std::filesystem;

/// The first `size` samples of another set.
class FirstSamples final : public Dataset {
 public:
  FirstSamples(std::shared_ptr<const Dataset> whole, int64_t size)
      : whole_(std::move(whole)), size_(size) {}
  int64_t size() const override { return size_; }
  model::Shape shape() const override { return whole_->shape(); }
  int64_t classes() const override { return whole_->classes(); }
  std::span<const uint8_t> pixels(int64_t index) const override { return whole_->pixels(index); }
  Stored sample(int64_t index) const override { return whole_->sample(index); }
  void verify(int64_t index, std::span<const std::byte> bytes) const override {
    whole_->verify(index, bytes);
  }
  void will_need(int64_t index) const override { whole_->will_need(index); }
  std::string name(int64_t index) const override { return whole_->name(index); }
  int32_t label(int64_t index) const override { return whole_->label(index); }
  int64_t distinct() const override { return std::min(size_, whole_->distinct()); }

 private:
  std::shared_ptr<const Dataset> whole_;
  int64_t size_;
};

TrainTest read(const job::Data& options) {
  if (options.kind == "synthetic") return make_synthetic(options);
  struct Reader {
    const char* kind;
    TrainTest (*read)(const fs::path& folder);
  };
  constexpr std::array<Reader, 3> kReaders{{{.kind = "idx", .read = read_idx},
                                            {.kind = "cifar10", .read = read_cifar10},
                                            {.kind = "cifar100", .read = read_cifar100}}};
  for (const Reader& reader : kReaders) {
    if (options.kind != reader.kind) continue;
    if (options.path.empty()) {
      refuse("data.path is missing: kind {} needs the folder that holds its files", options.kind);
    }
    if (!fs::is_directory(options.path)) {
      refuse("data.path: {} is not a folder{}", options.path,
             options.kind == "cifar100"
                 ? ""
                 : "; `scripts/get-data` fetches mnist, fashion-mnist and cifar10");
    }
    return reader.read(options.path);
  }
  const std::vector<std::string> kinds{"idx",    "cifar10", "cifar100",
                                       "folder", "packed",  "synthetic"};
  const std::string near = nearest(options.kind, kinds);
  refuse("data.kind: there is no kind '{}'{}; known are {}", options.kind,
         near.empty() ? "" : "; did you mean '" + near + "'?", join(kinds));
}

std::vector<Moments> measure(const Dataset& set) {
  const auto channels = static_cast<size_t>(set.shape().channels);
  const auto plane = static_cast<size_t>(set.shape().height * set.shape().width);
  std::vector<Moments> moments(channels);
  for (int64_t i = 0; i < set.distinct(); ++i) {
    const auto pixels = set.pixels(i);
    for (size_t c = 0; c < channels; ++c) {
      moments[c] += measure_plane(pixels.subspan(c * plane, plane));
    }
  }
  return moments;
}

void check_given(const char* key, const std::vector<double>& values, int64_t channels) {
  if (!values.empty() && static_cast<int64_t>(values.size()) != channels) {
    refuse("data.{}: expected one value per channel, {} in all; found {}", key, channels,
           values.size());
  }
}

/// As the job says; what it leaves open stays, or is measured.
void normalise(const job::Data& options, Source& source) {
  const int64_t channels = source.train->shape().channels;
  check_given("mean", options.mean, channels);
  check_given("std", options.std, channels);
  for (const double std : options.std) {
    if (!(std > 0)) refuse("data.std: expected values above 0, found {}", std);
  }
  if (!options.mean.empty()) source.mean.assign(options.mean.begin(), options.mean.end());
  if (!options.std.empty()) source.std.assign(options.std.begin(), options.std.end());
  if (!source.mean.empty() && !source.std.empty()) return;
  const bool wants_mean = source.mean.empty();
  const bool wants_std = source.std.empty();
  for (const Moments& channel : measure(*source.train)) {
    if (wants_mean) source.mean.push_back(static_cast<float>(channel.mean()));
    if (wants_std) source.std.push_back(static_cast<float>(channel.deviation()));
  }
}

uint64_t fingerprint(const Dataset& set, uint64_t seed) {
  const model::Shape shape = set.shape();
  const std::array<int64_t, 6> counts{shape.channels, shape.height, shape.width,
                                      set.classes(),  set.size(),   set.distinct()};
  const auto bytes = std::as_bytes(std::span(counts));
  uint64_t hash = checksum({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}, seed);
  std::vector<uint8_t> labels;
  for (int64_t i = 0; i < set.distinct(); ++i) {
    const auto label = static_cast<uint32_t>(set.label(i));
    for (int shift = 0; shift < 32; shift += 8) {
      labels.push_back(static_cast<uint8_t>(label >> shift));
    }
    hash = checksum(set.pixels(i), hash);
  }
  return checksum(labels, hash);
}

/// Scaling and jitter are for images.
void check_augment(const job::Augment& augment, const Dataset& set) {
  if (augment.crop_area.empty() && augment.jitter.empty()) return;
  const int64_t channels = set.shape().channels;
  if (channels == 1 || channels == 3) return;
  refuse("data.augment.{} is for images of 1 or 3 channels; these samples have {}",
         augment.crop_area.empty() ? "jitter" : "crop_area", channels);
}

}  // namespace

Stored Dataset::sample(int64_t index) const {
  const model::Shape of = shape();
  ImageInfo image;
  image.width = static_cast<int32_t>(of.width);
  image.height = static_cast<int32_t>(of.height);
  image.channels = static_cast<int32_t>(of.channels);
  return {.bytes = std::as_bytes(pixels(index)), .image = image, .label = label(index)};
}

std::string Dataset::name(int64_t index) const {
  return fmt::format("sample {}", index);
}

void BadSamples::add(const std::string& name, const std::string& problem) {
  const std::lock_guard lock(mutex_);
  // Messages about checksums begin with the name themselves.
  const std::string line =
      problem.starts_with(name) ? problem : fmt::format("{}: {}", name, problem);
  if (all_.emplace(name, line).second) fresh_.push_back(line);
}

std::vector<std::string> BadSamples::take() {
  const std::lock_guard lock(mutex_);
  return std::exchange(fresh_, {});
}

int64_t BadSamples::count() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int64_t>(all_.size());
}

std::map<std::string, std::string> BadSamples::all() const {
  const std::lock_guard lock(mutex_);
  return all_;
}

Source open(const job::Data& options) {
  if (options.limit < 0) refuse("data.limit: expected 0 or more, found {}", options.limit);
  Source source;
  const bool packed = options.kind == "packed" || options.kind == "folder";
  if (packed) {
    source = open_packed(options);
  } else {
    TrainTest sets = read(options);
    source.train = std::move(sets.train);
    source.test = std::move(sets.test);
  }
  source.center_crop = options.center_crop;
  if (options.bad == "skip") source.bad = std::make_shared<BadSamples>();
  check_augment(options.augment, *source.train);
  if (options.limit > 0 && options.limit < source.train->size()) {
    source.train = std::make_shared<FirstSamples>(std::move(source.train), options.limit);
  }
  normalise(options, source);
  if (packed) {
    const int64_t size = source.train->size();
    const auto bytes = std::as_bytes(std::span(&size, 1));
    source.fingerprint = checksum({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()},
                                  source.fingerprint);
  } else {
    source.fingerprint = fingerprint(*source.test, fingerprint(*source.train, 0));
  }
  return source;
}

}  // namespace convoy::data
