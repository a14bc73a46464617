#include "app/launch/noise.hpp"

#include <algorithm>
#include <array>
#include <regex>

namespace convoy::app {
namespace {

const std::string kRule = std::string(74, '-') + "\n";  // as long as Open MPI draws it

/// Single lines of mpirun: what it does with signals, and that it holds back repeated explanations.
bool is_noise(const std::string& line) {
  static const std::regex kNoise(
      R"(mpirun: (Forwarding signal \d+ to job|killing job\.\.\.)\n)"
      R"(|\[[^ \]]+:\d+\] \d+ more process(es)? ha(s|ve) sent help message .*\n)"
      R"(|\[[^ \]]+:\d+\] Set MCA parameter "orte_base_help_aggregate" to 0 .*\n)"
      R"(|\[[^ \]]+:\d+\] \[\[\d+,\d+\],\d+\] ORTE_ERROR_LOG: .*show_help\.c at line \d+\n)");
  return std::regex_match(line, kNoise);
}

/// A line of mpirun's could begin like this.
bool may_be_noise(const std::string& begun) {
  constexpr std::string_view kOwn = "mpirun: ";
  return begun.starts_with('[') || kOwn.starts_with(begun.substr(0, kOwn.size())) ||
         kRule.starts_with(begun);
}

}  // namespace

std::string NoiseFilter::pass(std::string_view piece) {
  std::string shown;
  while (!piece.empty()) {
    const size_t end = std::min(piece.find('\n'), piece.size() - 1) + 1;
    line_ += piece.substr(0, end);
    piece.remove_prefix(end);
    if (line_.ends_with('\n')) {
      shown += take_line(line_);
    } else if (showing_ || (block_.empty() && !may_be_noise(line_))) {
      shown += line_;
      showing_ = true;
    } else {
      continue;
    }
    showing_ = showing_ && !line_.ends_with('\n');
    line_.clear();
  }
  return shown;
}

std::string NoiseFilter::take_line(const std::string& line) {
  // A worker that speaks like this ends all others (app/worker.hpp). mpirun says so, too, but not
  // while it waits for a host that does not answer.
  if (line.starts_with("convoy: worker ")) aborting_ = true;
  if (showing_) return line;
  if (block_.empty()) {
    if (line != kRule) return is_noise(line) ? "" : line;
    block_ = line;
    return "";
  }
  block_ += line;
  if (line != kRule) return "";
  std::string block;
  block.swap(block_);
  return understood(block) ? "" : block;
}

std::string NoiseFilter::rest() {
  std::string shown = block_ + line_;
  block_.clear();
  line_.clear();
  return shown;
}

bool NoiseFilter::understood(const std::string& block) {
  static const std::regex kSignal(
      R"(noticed that process rank (\d+) with PID \d+ on node (\S+) exited on signal (\d+))");
  static const std::regex kCode(R"(Process name: \[\[\d+,\d+\],(\d+)\]\s+Exit code:\s+(\d+))");
  static const std::regex kLost(
      R"(ORTE has lost communication[^]*Remote daemon: \S+ on node (\S+))");
  std::smatch found;
  if (std::regex_search(block, found, kSignal)) {
    if (!first_end_) first_end_ = {std::stoi(found[1]), found[2], std::stoi(found[3]), 0};
    return true;
  }
  if (std::regex_search(block, found, kCode)) {
    if (!first_end_) first_end_ = {std::stoi(found[1]), "", 0, std::stoi(found[2])};
    return true;
  }
  if (std::regex_search(block, found, kLost)) {
    lost_hosts_.push_back(found[1]);
    return true;
  }
  for (const char* words : {"ORTE was unable to reliably start one or more daemons",
                            "An ORTE daemon has unexpectedly failed after launch"}) {
    lost_a_host_ = lost_a_host_ || block.find(words) != std::string::npos;
  }
  if (lost_a_host_) return true;
  // Said at once, whereas the explanations above come when the last worker has gone.
  for (const char* words :
       {"Primary job  terminated normally, but", "MPI_ABORT was invoked on rank"}) {
    if (block.find(words) == std::string::npos) continue;
    aborting_ = true;
    return true;
  }
  constexpr std::array<std::string_view, 2> kRepeated = {
      "has exited due to process rank", "noticed that the job aborted, but has no info"};
  return std::any_of(kRepeated.begin(), kRepeated.end(), [&](std::string_view words) {
    return block.find(words) != std::string::npos;
  });
}

}  // namespace convoy::app
