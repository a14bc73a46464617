#include <string>

#include "convoy/base/file.hpp"
#include "convoy/data/readers.hpp"

namespace convoy::data {
namespace {

namespace fs = std::filesystem;

constexpr model::Shape kShape{3, 32, 32};
constexpr size_t kPixels = 3072;

// A record is its label bytes, each below its bound, then the pixels; the last label counts.
struct Format {
  std::vector<int> bounds;
  std::string subfolder;  // as the official archive unpacks
  std::string advice;     // when a file is missing
};

fs::path find(const fs::path& folder, const std::string& name, const Format& format) {
  for (const fs::path& path : {folder / name, folder / format.subfolder / name}) {
    if (fs::exists(path)) return path;
  }
  refuse("{}: there is no {}, neither there nor in its sub-folder {}; {}", folder.string(), name,
         format.subfolder, format.advice);
}

void append_records(const fs::path& path, const Format& format, std::vector<uint8_t>& pixels,
                    std::vector<uint8_t>& labels) {
  const std::vector<uint8_t> bytes = read_file(path);
  const size_t label_bytes = format.bounds.size();
  const size_t record = label_bytes + kPixels;
  if (bytes.empty() || bytes.size() % record != 0) {
    refuse(
        "{}: expected a whole number of records of {} bytes; found {} bytes, {} records and {} "
        "bytes more",
        path.string(), record, bytes.size(), bytes.size() / record, bytes.size() % record);
  }
  for (size_t i = 0; i < bytes.size() / record; ++i) {
    const std::span one = std::span(bytes).subspan(i * record, record);
    for (size_t k = 0; k < label_bytes; ++k) {
      if (one[k] >= format.bounds[k]) {
        refuse("{}: label byte {} of record {} is {}, expected 0 to {}", path.string(), k, i,
               one[k], format.bounds[k] - 1);
      }
    }
    labels.push_back(one[label_bytes - 1]);
    pixels.insert(pixels.end(), one.begin() + static_cast<ptrdiff_t>(label_bytes), one.end());
  }
}

std::shared_ptr<const Dataset> read_set(const fs::path& folder,
                                        const std::vector<std::string>& names,
                                        const Format& format) {
  std::vector<fs::path> paths;
  size_t total = 0;
  for (const std::string& name : names) {
    paths.push_back(find(folder, name, format));
    total += fs::file_size(paths.back());
  }
  std::vector<uint8_t> pixels;
  std::vector<uint8_t> labels;
  pixels.reserve(total);
  for (const fs::path& path : paths) append_records(path, format, pixels, labels);
  return std::make_shared<MemoryDataset>(kShape, format.bounds.back(), std::move(pixels), 0,
                                         std::move(labels));
}

}  // namespace

TrainTest read_cifar10(const fs::path& folder) {
  const Format format{.bounds = {10},
                      .subfolder = "cifar-10-batches-bin",
                      .advice = "`scripts/get-data cifar10` fetches it"};
  return {read_set(folder,
                   {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin",
                    "data_batch_5.bin"},
                   format),
          read_set(folder, {"test_batch.bin"}, format)};
}

TrainTest read_cifar100(const fs::path& folder) {
  const Format format{.bounds = {20, 100},
                      .subfolder = "cifar-100-binary",
                      .advice = "unpack the binary version of CIFAR-100 there"};
  return {read_set(folder, {"train.bin"}, format), read_set(folder, {"test.bin"}, format)};
}

}  // namespace convoy::data
