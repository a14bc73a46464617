#pragma once
// Before workers train together: each does its preparations, and if one cannot, or if two differ,
// all end with one message that names who and what.

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "convoy/job/job.hpp"
#include "convoy/sync/team.hpp"

namespace convoy::train {

/// All workers know that they have to end, and end in order. The first one says why; for the others
/// what() is empty.
class AgreedFailure : public std::exception {
 public:
  AgreedFailure(int code, std::string text) : code_(code), text_(std::move(text)) {}
  int code() const { return code_; }  ///< exit code
  const char* what() const noexcept override { return text_.c_str(); }

 private:
  int code_;
  std::string text_;
};

/// Runs `work` on every worker; collective. If it throws anywhere, all throw AgreedFailure, which
/// says what happened to whom. A worker alone throws what it threw.
void together(const sync::Team& team, const std::string& what, const std::function<void()>& work);

/// What must be the same for all workers: "train.batch" → "128", "version" → "0.1.0".
using Fingerprint = std::map<std::string, std::string>;

/// Every key of a job but those that may differ between machines (paths, lanes, memory).
Fingerprint fingerprint_of(const job::Job& job);

/// Refuses with a table of what differs, naming workers; collective.
void compare(const sync::Team& team, const Fingerprint& own);

/// The same for fingerprints at hand, by rank; "" if they are equal. `names` are the workers'.
std::string differences(const std::vector<Fingerprint>& all, const std::vector<std::string>& names);

}  // namespace convoy::train
