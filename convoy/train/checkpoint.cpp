#include "convoy/train/checkpoint.hpp"

#include <charconv>
#include <functional>
#include <utility>

#include "convoy/base/error.hpp"
#include "convoy/base/text.hpp"
#include "convoy/base/version.hpp"

namespace convoy::train {
namespace {

constexpr const char* kPrefix = "optimizer.";
constexpr const char* kVersion = "convoy.version";

std::string state_name(const std::string& state, const std::string& parameter) {
  return kPrefix + state + "." + parameter;
}

std::string shape_text(const std::vector<int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

// ---- Metadata -----------------------------------------------------------------------------------

/// Walks the fields of a Progression with their keys: one list for writing and for reading.
template <typename Self, typename Visit>
void visit_fields(Self& at, const Visit& visit) {
  visit("convoy.step", at.step);
  visit("convoy.position", at.position);
  visit("convoy.seed", at.seed);
  visit("convoy.batch", at.batch);
  visit("convoy.grain", at.grain);
  visit("convoy.model", at.model);
  visit("convoy.model_hash", at.model_hash);
  visit("convoy.data_fingerprint", at.data_fingerprint);
  visit("convoy.best_metric", at.best_metric);
  visit("convoy.best_step", at.best_step);
  visit("convoy.evals_since_best", at.evals_since_best);
  visit("convoy.elapsed_seconds", at.elapsed.value);
}

Metadata to_metadata(const Progression& at) {
  Metadata metadata{{kVersion, version()}};
  // {} prints a double with as many digits as it takes to read back the same one.
  visit_fields(
      at, [&](const char* key, const auto& value) { metadata[key] = fmt::format("{}", value); });
  return metadata;
}

bool parse(const std::string& text, std::string& value) {
  value = text;
  return true;
}

template <typename Number>
bool parse(const std::string& text, Number& value) {
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && rest == end;
}

Progression from_metadata(const Metadata& metadata, const std::string& file) {
  Progression at;
  visit_fields(at, [&](const char* key, auto& value) {
    const auto found = metadata.find(key);
    if (found == metadata.end()) refuse("{}: expected the metadata {}, found none", file, key);
    if (!parse(found->second, value)) {
      refuse("{}: expected a number as metadata {}, found '{}'", file, key, found->second);
    }
  });
  return at;
}

// ---- Tensors ------------------------------------------------------------------------------------

/// The tensors of a file by name, and the list of what is wrong with them.
class Matcher {
 public:
  Matcher(std::vector<NamedTensor> tensors, std::string file) : file_(std::move(file)) {
    for (NamedTensor& tensor : tensors) {
      std::string name = tensor.name;
      found_.emplace(std::move(name), std::move(tensor));
    }
  }

  /// Takes tensor `name` out; notes it as a difference if it is missing or has another shape.
  NamedTensor take(const std::string& name, const std::vector<int64_t>& shape) {
    const auto place = found_.find(name);
    if (place == found_.end()) {
      missing_.push_back(name);
      return {};
    }
    NamedTensor tensor = std::move(place->second);
    found_.erase(place);
    if (tensor.shape != shape) {
      other_.push_back(fmt::format("other shape: {} is {}, the model has {}", name,
                                   shape_text(tensor.shape), shape_text(shape)));
    }
    return tensor;
  }

  std::vector<NamedTensor> take_all(const std::vector<ExpectedTensor>& expected) {
    std::vector<NamedTensor> taken;
    taken.reserve(expected.size());
    for (const auto& [name, shape] : expected) taken.push_back(take(name, shape));
    return taken;
  }

  void drop_if(const std::function<bool(const std::string&)>& unwanted) {
    std::erase_if(found_, [&](const auto& item) { return unwanted(item.first); });
  }

  /// Throws InputError if anything was missing or different, or is left over.
  void finish() const {
    std::vector<std::string> lines;
    for (const std::string& name : missing_) {
      lines.push_back(fmt::format("missing: {}{}", name, meant(name)));
    }
    lines.insert(lines.end(), other_.begin(), other_.end());
    for (const auto& [name, tensor] : found_) {
      lines.push_back(fmt::format("unexpected: {} {}", name, shape_text(tensor.shape)));
    }
    if (lines.empty()) return;
    constexpr size_t kMost = 10;
    const size_t total = lines.size();
    if (total > kMost) {
      lines.resize(kMost);
      lines.push_back(fmt::format("and {} more", total - kMost));
    }
    refuse("{} does not fit the model:\n  {}", file_, join(lines, "\n  "));
  }

 private:
  // Only among what is left over: a renamed tensor shows up on both lists.
  std::string meant(const std::string& name) const {
    std::vector<std::string> left;
    for (const auto& item : found_) left.push_back(item.first);
    if (left.size() > 100) return "";
    const std::string near = nearest(name, left);
    return near.empty() ? "" : fmt::format(" (the file has {})", near);
  }

  std::string file_;
  std::map<std::string, NamedTensor> found_;
  std::vector<std::string> missing_;
  std::vector<std::string> other_;
};

bool is_state(const std::string& name) {
  return name.starts_with(kPrefix);
}

// PyTorch counts the batches of each batch norm; nothing is computed from it.
bool is_counter(const std::string& name) {
  return name.ends_with(".num_batches_tracked");
}

}  // namespace

void save_checkpoint(const std::filesystem::path& path, const Progression& at,
                     const CheckpointTensors& tensors) {
  std::vector<Tensor> all = tensors.weights;
  all.insert(all.end(), tensors.buffers.begin(), tensors.buffers.end());
  for (const auto& [state, of_state] : tensors.states) {
    for (const Tensor& tensor : of_state) {
      all.push_back({state_name(state, tensor.name), tensor.shape, tensor.values});
    }
  }
  write_safetensors(path, all, to_metadata(at));
}

double saved_metric(const std::filesystem::path& path) {
  return from_metadata(read_safetensors(path).metadata, path.string()).best_metric;
}

Checkpoint load_checkpoint(const std::filesystem::path& path, const Expected& expected) {
  const std::string file = path.string();
  Safetensors content = read_safetensors(path);
  if (!content.metadata.contains(kVersion)) {
    refuse("{} holds weights without the state of a training: it can be evaluated, not resumed",
           file);
  }
  if (!content.metadata.contains(kChecksumKey)) {
    refuse("{}: expected the metadata {}, found none", file, kChecksumKey);
  }
  Checkpoint checkpoint;
  checkpoint.at = from_metadata(content.metadata, file);
  Matcher matcher(std::move(content.tensors), file);
  checkpoint.weights = matcher.take_all(expected.weights);
  checkpoint.buffers = matcher.take_all(expected.buffers);
  for (const std::string& state : expected.states) {
    std::vector<NamedTensor>& tensors = checkpoint.states[state];
    for (const auto& [name, shape] : expected.weights) {
      tensors.push_back(matcher.take(state_name(state, name), shape));
      tensors.back().name = name;
    }
  }
  matcher.finish();
  return checkpoint;
}

Checkpoint load_weights(const std::filesystem::path& path, const Expected& expected) {
  const std::string file = path.string();
  Safetensors content = read_safetensors(path);
  Checkpoint checkpoint;
  if (content.metadata.contains(kVersion)) {
    checkpoint.at = from_metadata(content.metadata, file);
  }
  Matcher matcher(std::move(content.tensors), file);
  matcher.drop_if([](const std::string& name) { return is_state(name) || is_counter(name); });
  checkpoint.weights = matcher.take_all(expected.weights);
  checkpoint.buffers = matcher.take_all(expected.buffers);
  matcher.finish();
  return checkpoint;
}

}  // namespace convoy::train
