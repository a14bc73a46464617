#pragma once
// What a training shows while it runs: one live line on a terminal, a plain line per interval in a
// log, or lines of JSON.

#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>

#include "convoy/base/units.hpp"

namespace convoy::train {

enum class ProgressMode { live, plain, json };

/// The variable that says whether stdout is the user's terminal (1) or not (0), where it is that of
/// a launcher in any case.
inline constexpr const char* kTerminal = "CONVOY_TERMINAL";

/// json if asked for, else live on a terminal and plain elsewhere.
ProgressMode progress_mode(std::FILE* out, bool json);

/// How far the training is.
struct Standing {
  int64_t step = 0;  ///< updates done
  int64_t total_steps = 0;
  double epoch = 0;
  double epochs = 0;
  double loss = 0;
  std::optional<double> accuracy;  ///< of the last evaluation, 0 … 1
  double images_per_second = 0;
  std::optional<Seconds> left;  ///< until the end
  std::string balance;          ///< of several workers: shares, and who is slowest
};

/// "step 120/3900  epoch 0.31/10  loss 1.8321  acc 41.20 %  5321 images/s  1 min 12 s left".
/// With `columns` > 0, fields that do not fit are left off from the right.
std::string format_standing(const Standing& standing, int columns = 0);

struct ProgressOptions {
  Seconds live_interval{0.1};  ///< at most ten updates per second
  Seconds plain_interval{10};  ///< also of JSON lines
  int columns = 0;             ///< of the terminal; 0: ask it
};

class Progress {
 public:
  Progress(std::FILE* out, ProgressMode mode, ProgressOptions options = {});
  /// Leaves the cursor at the start of a line.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Shows `standing` unless the last showing is too recent. `at` is the time now.
  void update(const Standing& standing, Seconds at = now());
  /// Prints a line that stays (result of an evaluation, a warning); not in JSON mode, where the
  /// caller says it in JSON by json_line().
  void message(std::string_view line);
  void json_line(std::string_view object);
  /// Shows the last standing if it was held back, and ends the line.
  void finish();

 private:
  void show(const Standing& standing);
  void put(std::string_view text);
  int columns() const;

  std::FILE* out_;
  ProgressMode mode_;
  ProgressOptions options_;
  std::optional<Seconds> shown_at_;
  std::optional<Standing> held_back_;
  bool line_open_ = false;
};

}  // namespace convoy::train
