#include "convoy/job/read.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string_view>

#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>

#include "convoy/base/error.hpp"
#include "convoy/base/text.hpp"
#include "convoy/job/fields.hpp"
#include "convoy/job/value.hpp"

namespace convoy::job {
namespace {

constexpr size_t kLargestFile = size_t{1} << 20;
constexpr size_t kMostProblems = 20;
constexpr size_t kLongestShown = 80;
constexpr int kDeepest = 64;
constexpr int kMostNodes = 100'000;

/// Where a value comes from: lines of a file, or one --set.
struct Origin {
  std::string name;
  bool has_lines;

  std::string at(const YAML::Node& node) const { return at(node.Mark()); }
  std::string at(const YAML::Mark& mark) const {
    return has_lines && !mark.is_null() ? fmt::format("{}:{}", name, mark.line + 1) : name;
  }
};

/// Only looks where documents begin.
class Documents final : public YAML::EventHandler {
 public:
  const std::vector<YAML::Mark>& begins() const { return begins_; }

  void OnDocumentStart(const YAML::Mark& mark) override { begins_.push_back(mark); }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& /*mark*/, YAML::anchor_t /*anchor*/) override {}
  void OnAlias(const YAML::Mark& /*mark*/, YAML::anchor_t /*anchor*/) override {}
  void OnScalar(const YAML::Mark& /*mark*/, const std::string& /*tag*/, YAML::anchor_t /*anchor*/,
                const std::string& /*value*/) override {}
  void OnSequenceStart(const YAML::Mark& /*mark*/, const std::string& /*tag*/,
                       YAML::anchor_t /*anchor*/, YAML::EmitterStyle::value /*style*/) override {}
  void OnSequenceEnd() override {}
  void OnMapStart(const YAML::Mark& /*mark*/, const std::string& /*tag*/, YAML::anchor_t /*anchor*/,
                  YAML::EmitterStyle::value /*style*/) override {}
  void OnMapEnd() override {}

 private:
  std::vector<YAML::Mark> begins_;
};

/// Where the first and, if there is one, the second document begin. No further: behind some broken
/// text yaml-cpp finds one empty document after the other, and never an end.
std::vector<YAML::Mark> first_documents(const std::string& text) {
  std::istringstream stream(text);
  YAML::Parser parser(stream);
  Documents documents;
  while (documents.begins().size() < 2 && parser.HandleNextDocument(documents)) {
  }
  return documents.begins();
}

/// Counts nodes as a reader that follows aliases meets them. Aliases can nest, even in themselves,
/// so a small file can stand for a tree too large to walk.
bool is_bounded(const YAML::Node& node, int& budget, int depth = 0) {
  if (--budget < 0 || depth > kDeepest) return false;
  if (node.IsSequence()) {
    for (const auto& item : node) {
      if (!is_bounded(item, budget, depth + 1)) return false;
    }
  }
  if (node.IsMap()) {
    for (const auto& item : node) {
      if (!is_bounded(item.first, budget, depth + 1)) return false;
      if (!is_bounded(item.second, budget, depth + 1)) return false;
    }
  }
  return true;
}

/// A copy without marks: lines of a --set value would be taken for lines of the file.
YAML::Node unmarked(const YAML::Node& node) {
  if (node.IsScalar()) return YAML::Node(node.Scalar());
  YAML::Node copy(node.Type());
  if (node.IsSequence()) {
    for (const auto& item : node) copy.push_back(unmarked(item));
  }
  if (node.IsMap()) {
    for (const auto& item : node) copy.force_insert(unmarked(item.first), unmarked(item.second));
  }
  return copy;
}

/// Sets the part of `node` that `path` ("layers.0.conv.out") leads to; returns what is in the way.
std::string set_inside(YAML::Node node, std::string_view path, const YAML::Node& value) {
  const size_t dot = path.find('.');
  const std::string name(path.substr(0, dot));
  const bool last = dot == std::string_view::npos;
  if (node.IsSequence()) {
    size_t index = node.size();
    std::from_chars(name.data(), name.data() + name.size(), index);
    if (index >= node.size()) {
      return fmt::format("there is no entry '{}' in this list; they are numbered from 0 to {}",
                         name, static_cast<int64_t>(node.size()) - 1);
    }
    if (!last) return set_inside(node[index], path.substr(dot + 1), value);
    node[index] = value;
    return "";
  }
  if (!node.IsMap()) return fmt::format("{} has no parts to set", describe(node));
  if (last) {
    node[name] = value;
    return "";
  }
  if (!node[name]) node[name] = YAML::Node(YAML::NodeType::Map);
  return set_inside(node[name], path.substr(dot + 1), value);
}

/// Fills a job from a document and overrides, and collects what is wrong with them.
class Reader {
 public:
  explicit Reader(std::string file) { job_.file = std::move(file); }

  void read(const std::string& text);
  void set(const std::string& argument);
  void check_together();
  Job finish();

 private:
  void read_node(const std::string& path, const YAML::Node& node, const Origin& origin);
  void read_map(const Section& section, const YAML::Node& map, const Origin& origin);
  void read_field(const Field& field, const YAML::Node& node, const Origin& origin);
  void refuse_key(const std::string& path, const std::string& where);
  void set_in_model(const std::string& path, const YAML::Node& value, const Origin& origin);
  YAML::Node load(const std::string& text, const Origin& origin);

  void check_data();
  void check_augment();
  void check_training();
  void check_grain();

  void complain(const std::string& where, std::string_view path, std::string_view problem);
  /// Complains about a field with a value that is fine alone.
  void complain(std::string_view path, std::string_view problem);
  /// False after a complaint about one of them or what holds them: a second one would be noise.
  bool are_fine(std::initializer_list<std::string_view> keys) const;

  Job job_;
  std::map<std::string, std::string, std::less<>> where_;  ///< fields that were set, and where
  std::set<std::string, std::less<>> wrong_;
  std::vector<std::string> problems_;
};

void Reader::complain(const std::string& where, std::string_view path, std::string_view problem) {
  wrong_.emplace(path);
  problems_.push_back(path.empty() ? fmt::format("{}: {}", where, problem)
                                   : fmt::format("{}: {}: {}", where, path, problem));
}

void Reader::complain(std::string_view path, std::string_view problem) {
  const auto set = where_.find(path);
  complain(set == where_.end() ? job_.file : set->second, path, problem);
}

bool Reader::are_fine(std::initializer_list<std::string_view> keys) const {
  for (std::string_view key : keys) {
    for (; !key.empty(); key = parent(key)) {
      if (wrong_.contains(key)) return false;
    }
  }
  return !wrong_.contains("");
}

/// The one document in `text`; undefined, with a complaint, if it is not that.
YAML::Node Reader::load(const std::string& text, const Origin& origin) {
  const YAML::Node none(YAML::NodeType::Undefined);
  try {
    const std::vector<YAML::Mark> begins = first_documents(text);
    if (begins.size() > 1) {
      complain(origin.at(begins[1]), "", "a second document begins; a job is one");
      return none;
    }
    YAML::Node document = YAML::Load(text);
    int budget = kMostNodes;
    if (is_bounded(document, budget)) return document;
    complain(origin.name, "",
             fmt::format("more than {} values or {} levels, aliases followed; no job needs that",
                         kMostNodes, kDeepest));
  } catch (const YAML::ParserException& error) {
    const std::string where =
        origin.has_lines && !error.mark.is_null()
            ? fmt::format("{}:{}:{}", origin.name, error.mark.line + 1, error.mark.column + 1)
            : origin.name;
    complain(where, "", fmt::format("not valid YAML: {}", error.msg));
  }
  return none;
}

void Reader::read(const std::string& text) {
  const Origin origin{job_.file, true};
  const YAML::Node document = load(text, origin);
  if (!document.IsDefined()) return;
  if (document.IsNull()) {
    complain(job_.file, "", "empty; a job needs at least model and data (see convoy config)");
  } else if (!document.IsMap()) {
    complain(
        origin.at(document), "",
        fmt::format("{} is no job; a job is a map of {}", describe(document), join(names_in(""))));
  } else {
    read_node("", document, origin);
  }
}

void Reader::set(const std::string& argument) {
  const Origin origin{fmt::format("--set {}{}", argument.substr(0, kLongestShown),
                                  argument.size() > kLongestShown ? "…" : ""),
                      false};
  const size_t equals = argument.find('=');
  if (equals == 0 || equals == std::string::npos) {
    return complain(origin.name, "", "write --set KEY=VALUE, such as --set train.batch=64");
  }
  const std::string path = argument.substr(0, equals);
  const YAML::Node value = load(argument.substr(equals + 1), origin);
  if (!value.IsDefined()) return;
  if (path == "model") return read_node(path, unmarked(value), origin);
  if (path.starts_with("model.")) return set_in_model(path, unmarked(value), origin);
  read_node(path, value, origin);
}

void Reader::set_in_model(const std::string& path, const YAML::Node& value, const Origin& origin) {
  if (!job_.model.IsDefined() || job_.model.IsNull()) {
    return complain(origin.name, path, "there is no model to change; set model first");
  }
  if (job_.model.IsScalar()) {
    YAML::Node map(YAML::NodeType::Map);
    map["name"] = job_.model;
    job_.model.reset(map);
  }
  const std::string problem = set_inside(job_.model, path.substr(sizeof("model.") - 1), value);
  if (!problem.empty()) complain(origin.name, path, problem);
}

void Reader::read_node(const std::string& path, const YAML::Node& node, const Origin& origin) {
  if (const Field* field = find_field(path)) return read_field(*field, node, origin);
  const Section* section = find_section(path);
  if (section == nullptr) return refuse_key(path, origin.at(node));
  if (node.IsNull()) return;
  if (node.IsMap()) return read_map(*section, node, origin);
  if (!section->shorthand.empty() && node.IsScalar()) {
    return read_field(*find_field(section->shorthand), node, origin);
  }
  complain(origin.at(node), path,
           fmt::format("{} where a map belongs; accepted in {}: {}", describe(node), path,
                       join(names_in(path))));
}

void Reader::read_map(const Section& section, const YAML::Node& map, const Origin& origin) {
  std::map<std::string, std::string> seen;
  for (const auto& entry : map) {
    const std::string where = origin.at(entry.first);
    if (!entry.first.IsScalar()) {
      complain(where, section.key, fmt::format("{} is no key", describe(entry.first)));
      continue;
    }
    const std::string path = path_of(section.key, entry.first.Scalar());
    const auto [first, is_new] = seen.emplace(entry.first.Scalar(), where);
    if (!is_new) {
      complain(where, path, fmt::format("given twice; first at {}", first->second));
    } else if (leaf(path) != entry.first.Scalar() && find_field(path) != nullptr) {
      complain(where, path,
               fmt::format("dotted keys are for --set; in a file write {}: {{{}: …}}", parent(path),
                           leaf(path)));
    } else if (find_field(path) == nullptr && find_section(path) == nullptr) {
      refuse_key(path, where);
    } else {
      read_node(path, entry.second, origin);
    }
  }
}

void Reader::read_field(const Field& field, const YAML::Node& node, const Origin& origin) {
  const std::string problem = read_value(field, node, job_);
  where_[field.key] = origin.at(node);
  if (problem.empty()) return;
  complain(origin.at(node), field.key, fmt::format("{}; accepted: {}", problem, accepted(field)));
}

void Reader::refuse_key(const std::string& path, const std::string& where) {
  std::string_view section = parent(path);
  while (find_section(section) == nullptr) section = parent(section);
  const std::string meant = meant_by(path);
  complain(where, path,
           fmt::format("unknown key; {}accepted {}: {}",
                       meant.empty() ? "" : fmt::format("did you mean {}? ", meant),
                       section.empty() ? "at the top" : fmt::format("in {}", section),
                       join(names_in(section))));
}

void Reader::check_together() {
  for (const Field& field : fields()) {
    if (!field.required || where_.contains(field.key) || !are_fine({field.key})) continue;
    complain(field.key, fmt::format("missing; accepted: {}", accepted(field)));
  }
  check_data();
  check_training();
  check_grain();
}

void Reader::check_data() {
  const Data& data = job_.data;
  const bool synthetic = data.kind == "synthetic";
  if (are_fine({"data.kind", "data.path"}) && !synthetic && data.path.empty()) {
    complain("data.path", fmt::format("missing; {} data is read from a {}", data.kind,
                                      data.kind == "packed" ? "file" : "folder"));
  }
  if (are_fine({"data.kind", "data.shape"}) && synthetic && data.shape.empty()) {
    complain("data.shape", "missing; synthetic data needs [channels, height, width]");
  }
  check_augment();
  if (!are_fine({"data.mean", "data.std", "data.shape"})) return;
  if (!data.mean.empty() && !data.std.empty() && data.mean.size() != data.std.size()) {
    complain("data.std", fmt::format("{} values, but data.mean has {}; both have one per channel",
                                     data.std.size(), data.mean.size()));
  } else if (synthetic && !data.shape.empty() && !data.mean.empty() &&
             static_cast<int64_t>(data.mean.size()) != data.shape[0]) {
    complain("data.mean", fmt::format("{} values, but data.shape has {} channels", data.mean.size(),
                                      data.shape[0]));
  }
}

void Reader::check_augment() {
  const Augment& augment = job_.data.augment;
  const auto check_ascending = [&](const char* key, const std::vector<double>& values) {
    if (!are_fine({key}) || values.size() != 2 || values[0] <= values[1]) return;
    complain(key, fmt::format("{} is more than {}; the least comes first", values[0], values[1]));
  };
  check_ascending("data.augment.crop_area", augment.crop_area);
  check_ascending("data.augment.crop_aspect", augment.crop_aspect);
  if (are_fine({"data.augment.pad_crop", "data.augment.crop_area"}) && augment.pad_crop > 0 &&
      !augment.crop_area.empty()) {
    complain("data.augment.pad_crop", "does not go with crop_area; both choose the part to show");
  }
}

void Reader::check_training() {
  const Train& train = job_.train;
  const LearningRate& lr = train.lr;
  if (are_fine({"train.lr.schedule", "train.lr.milestones"})) {
    if (lr.schedule == "multi-step" && lr.milestones.empty()) {
      complain("train.lr.milestones", "missing; multi-step needs the epochs at which to drop");
    }
    for (size_t i = 1; i < lr.milestones.size(); ++i) {
      if (lr.milestones[i] > lr.milestones[i - 1]) continue;
      complain("train.lr.milestones", fmt::format("{} follows {}; milestones ascend",
                                                  lr.milestones[i], lr.milestones[i - 1]));
      break;
    }
  }
  if (are_fine({"train.batch", "train.lr.base_batch"}) && train.batch == 0 && lr.base_batch == 0) {
    complain("train.lr.base_batch",
             "missing; train.batch: auto needs to know which batch train.lr.peak is meant for");
  }
  if (are_fine({"train.lr.peak", "train.lr.final"}) && lr.final > lr.peak) {
    complain("train.lr.final", fmt::format("{} is more than train.lr.peak, {}", lr.final, lr.peak));
  }
  if (train.nesterov && are_fine({"train.optimizer", "train.momentum", "train.nesterov"})) {
    if (train.optimizer != "sgd") {
      complain("train.nesterov", fmt::format("is for sgd; train.optimizer is {}", train.optimizer));
    } else if (train.momentum == 0) {
      complain("train.nesterov", "needs momentum; train.momentum is 0");
    }
  }
}

void Reader::check_grain() {
  const int64_t batch = job_.train.batch;
  const int64_t grain = job_.engine.grain;
  if (grain == 0 || !are_fine({"train.batch", "engine.grain"}) || batch % grain == 0) return;
  int64_t below = std::min(grain, batch);
  while (batch % below != 0) --below;
  int64_t above = grain;
  while (above < batch && batch % above != 0) ++above;
  const std::string right = above >= batch && below == batch
                                ? fmt::format("{} is the largest that does", batch)
                                : fmt::format("nearest that do: {} and {}", below, above);
  complain("engine.grain",
           fmt::format("{} does not divide train.batch ({}); {}", grain, batch, right));
}

Job Reader::finish() {
  if (problems_.empty()) return std::move(job_);
  if (problems_.size() > kMostProblems) {
    const size_t more = problems_.size() - kMostProblems;
    problems_.resize(kMostProblems);
    problems_.push_back(fmt::format("{}: and {} more", job_.file, more));
  }
  throw InputError(join(problems_, "\n"));
}

/// A job is text: of a binary file yaml-cpp would read as far as the first end-of-file byte.
void refuse_binary(const std::string& text, const std::string& name) {
  int line = 1;
  for (const char c : text) {
    if (c == '\n') ++line;
    const auto byte = static_cast<unsigned char>(c);
    if ((byte < 0x20 && c != '\n' && c != '\r' && c != '\t') || byte == 0x7F) {
      refuse("{}:{}: not a text file (byte 0x{:02x})", name, line, byte);
    }
  }
}

void append_section(const Section& section, const Job& job, std::string& text) {
  const auto depth = static_cast<size_t>(std::ranges::count(section.key, '.'));
  text += fmt::format("{:{}}{}:\n", "", 2 * depth, leaf(section.key));
  for (const Field& field : fields()) {
    if (parent(field.key) != section.key) continue;
    text +=
        fmt::format("{:{}}{}: {}\n", "", 2 * depth + 2, leaf(field.key), print_value(field, job));
  }
}

}  // namespace

Job parse_job(const std::string& text, const std::string& name,
              const std::vector<std::string>& overrides) {
  if (text.size() > kLargestFile) {
    refuse("{}: larger than {} KiB; no job is that large", name, kLargestFile / 1024);
  }
  refuse_binary(text, name);
  Reader reader(name);
  reader.read(text);
  for (const std::string& argument : overrides) reader.set(argument);
  reader.check_together();
  return reader.finish();
}

Job read_job(const std::filesystem::path& path, const std::vector<std::string>& overrides) {
  const std::string name = path.string();
  std::ifstream file(path, std::ios::binary);
  if (!file) refuse("{}: cannot be opened: {}", name, std::strerror(errno));
  // Not the file's size, which a pipe does not have.
  std::string text(kLargestFile + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.bad()) refuse("{}: cannot be read: {}", name, std::strerror(errno));
  text.resize(static_cast<size_t>(file.gcount()));
  return parse_job(text, name, overrides);
}

std::string to_yaml(const Job& job) {
  YAML::Emitter model;
  model << YAML::BeginMap << YAML::Key << "model" << YAML::Value << job.model << YAML::EndMap;
  std::string text = fmt::format("{}\n", model.c_str());
  for (const Section& section : sections()) {
    if (!section.key.empty()) append_section(section, job, text);
  }
  return text;
}

}  // namespace convoy::job
