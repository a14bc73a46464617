#pragma once
// What mpirun writes to stderr is what the workers write there, and its own explanations between
// rules of dashes. Workers say themselves what went wrong, so the explanations are taken out, and
// what only mpirun knows (a worker was killed, a host was lost) is kept to be said in our words.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace convoy::app {

/// How a worker ended that did not end well: by a signal, or else with a code.
struct WorkerEnd {
  int rank = 0;
  std::string host;  ///< empty where mpirun does not name it
  int signal = 0;
  int code = 0;
  bool operator==(const WorkerEnd&) const = default;
};

/// Splits mpirun's stderr, piece by piece as it arrives.
class NoiseFilter {
 public:
  /// Takes the next piece and gives what of all that was taken is to be shown now. A line that
  /// cannot be mpirun's is shown as far as it is there, so progress stays live.
  std::string pass(std::string_view piece);
  /// What is left when there is no more: an explanation that did not come to its end is shown.
  std::string rest();

  /// The first worker that did not end well, as far as mpirun told.
  const std::optional<WorkerEnd>& first_end() const { return first_end_; }
  /// mpirun has begun to end all workers, because one did not end well.
  bool aborting() const { return aborting_; }
  /// Hosts whose daemon mpirun lost.
  const std::vector<std::string>& lost_hosts() const { return lost_hosts_; }
  /// mpirun lost a daemon without saying where, or could not start one.
  bool lost_a_host() const { return lost_a_host_; }

 private:
  std::string take_line(const std::string& line);
  /// True if the explanation says nothing that the user still has to read.
  bool understood(const std::string& block);

  std::string line_;      // begun, not ended, not shown
  bool showing_ = false;  // the beginning of this line was shown, so its end will be
  std::string block_;     // an explanation so far, its first rule included
  std::optional<WorkerEnd> first_end_;
  std::vector<std::string> lost_hosts_;
  bool lost_a_host_ = false;
  bool aborting_ = false;
};

}  // namespace convoy::app
