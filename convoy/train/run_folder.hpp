#pragma once
// The folder a training writes. It holds job.yaml, plan.yaml, events.jsonl, checkpoints/ and is
// locked while a process writes to it.

#include <ctime>
#include <filesystem>
#include <string>
#include <string_view>

namespace convoy::train {

/// "runs/resnet-20-20240131-093000"; with "-2", "-3", … if that is taken.
std::filesystem::path default_run_folder(std::string_view model, std::time_t when,
                                         const std::filesystem::path& parent = "runs");

class RunFolder {
 public:
  /// Starts a run in a folder that is new or empty. Refuses (InputError) a folder that holds
  /// another run or something else, so that nothing is ever overwritten.
  static RunFolder create(const std::filesystem::path& folder);
  /// Goes on with the run in `folder`. Refuses a folder that holds none.
  static RunFolder resume(const std::filesystem::path& folder);

  RunFolder(RunFolder&& other) noexcept;
  RunFolder& operator=(RunFolder&&) = delete;
  ~RunFolder();

  const std::filesystem::path& path() const { return folder_; }
  std::filesystem::path job() const { return folder_ / "job.yaml"; }
  std::filesystem::path plan() const { return folder_ / "plan.yaml"; }
  std::filesystem::path events() const { return folder_ / "events.jsonl"; }
  std::filesystem::path trace() const { return folder_ / "trace.json"; }
  std::filesystem::path last_checkpoint() const { return folder_ / "checkpoints/last.safetensors"; }
  /// The log of a worker other than the first.
  static std::filesystem::path log(const std::filesystem::path& folder, int rank);
  std::filesystem::path best_checkpoint() const { return folder_ / "checkpoints/best.safetensors"; }

  /// The resolved job, rerunnable; a folder with one is a run.
  void write_job(std::string_view yaml) const;
  void write_plan(std::string_view yaml) const;

 private:
  /// Takes the lock; refuses if another process has it.
  explicit RunFolder(std::filesystem::path folder);

  std::filesystem::path folder_;
  int lock_ = -1;
};

}  // namespace convoy::train
