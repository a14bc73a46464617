#include "convoy/train/agree.hpp"

#include <algorithm>
#include <array>
#include <optional>

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "convoy/base/error.hpp"
#include "convoy/job/read.hpp"

namespace convoy::train {
namespace {

/// "workers 0, 2 and 3 (a, b)" would hide who is where, so each is named.
std::string listed(const std::vector<int>& ranks, const std::vector<std::string>& names) {
  constexpr size_t kMost = 4;
  std::vector<std::string> shown;
  for (const int rank : ranks) {
    if (shown.size() < kMost) shown.push_back(names[static_cast<size_t>(rank)]);
  }
  std::string text = fmt::format("{}", fmt::join(shown, ", "));
  if (ranks.size() > kMost) text += fmt::format(" and {} more", ranks.size() - kMost);
  return text;
}

void flatten(const YAML::Node& node, const std::string& key, Fingerprint& to) {
  if (!node.IsMap() || key == "model") {
    YAML::Emitter text;
    text << YAML::Flow << node;
    to[key] = text.c_str();
    return;
  }
  for (const auto& entry : node) {
    const std::string name = entry.first.Scalar();
    flatten(entry.second, key.empty() ? name : key + "." + name, to);
  }
}

std::vector<std::string> names_of(const sync::Team& team) {
  std::vector<std::string> names;
  for (int r = 0; r < team.size(); ++r) names.push_back(team.name(r));
  return names;
}

/// By message: who has it.
std::map<std::string, std::vector<int>> grouped(const std::vector<std::string>& texts) {
  std::map<std::string, std::vector<int>> groups;
  for (size_t r = 0; r < texts.size(); ++r) groups[texts[r]].push_back(static_cast<int>(r));
  return groups;
}

}  // namespace

void together(const sync::Team& team, const std::string& what, const std::function<void()>& work) {
  if (team.size() == 1) {
    work();
    return;
  }
  // "": all is well; else how bad, and the message.
  std::string own;
  try {
    work();
  } catch (const InputError& error) {
    own = fmt::format("2{}", error.what());
  } catch (const std::exception& error) {
    own = fmt::format("1{}", error.what());
  }
  const std::vector<std::string> all = team.gather_text(own, what);
  if (std::all_of(all.begin(), all.end(), [](const std::string& t) { return t.empty(); })) return;
  const bool input =
      std::none_of(all.begin(), all.end(), [](const std::string& t) { return t.starts_with('1'); });
  const int code = input ? 2 : 1;
  if (team.rank() > 0) throw AgreedFailure(code, "");
  const auto groups = grouped(all);
  std::string text;
  for (const auto& [message, ranks] : groups) {
    if (message.empty()) continue;
    const bool everybody = static_cast<int>(ranks.size()) == team.size();
    if (!text.empty()) text += "\n";
    if (!everybody) text += listed(ranks, names_of(team)) + ": ";
    text += message.substr(1);
  }
  throw AgreedFailure(code, text);
}

Fingerprint fingerprint_of(const job::Job& job) {
  Fingerprint all;
  flatten(YAML::Load(job::to_yaml(job)), "", all);
  for (const char* own :
       {"data.path", "data.threads", "data.memory", "engine.lanes", "engine.memory"}) {
    all.erase(own);
  }
  return all;
}

std::string differences(const std::vector<Fingerprint>& all,
                        const std::vector<std::string>& names) {
  Fingerprint keys;
  for (const Fingerprint& f : all) keys.insert(f.begin(), f.end());
  std::string text;
  for (const auto& [key, first] : keys) {
    std::vector<std::string> values;
    for (const Fingerprint& f : all) {
      const auto found = f.find(key);
      values.push_back(found == f.end() ? "(none)" : found->second);
    }
    const auto groups = grouped(values);
    if (groups.size() == 1) continue;
    for (const auto& [value, ranks] : groups) {
      text += fmt::format("\n  {:<24} {:<28} {}", key, value, listed(ranks, names));
    }
  }
  return text;
}

void compare(const sync::Team& team, const Fingerprint& own) {
  if (team.size() == 1) return;
  const std::vector<std::string> texts =
      team.gather_text(nlohmann::json(own).dump(), "comparing jobs");
  std::vector<Fingerprint> all;
  for (const std::string& text : texts) {
    all.push_back(nlohmann::json::parse(text).get<Fingerprint>());
  }
  const std::string table = differences(all, names_of(team));
  if (table.empty()) return;
  throw AgreedFailure(
      2, team.rank() > 0 ? ""
                         : fmt::format("the workers do not train the same:\n  {:<24} {:<28} {}{}",
                                       "what", "is", "at", table));
}

}  // namespace convoy::train
