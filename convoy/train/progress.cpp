#include "convoy/train/progress.hpp"

#include <algorithm>
#include <cstdlib>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <sys/ioctl.h>
#include <unistd.h>

namespace convoy::train {
namespace {

constexpr const char* kClearLine = "\r\x1b[K";

std::string to_json(const Standing& s) {
  nlohmann::ordered_json line;
  line["event"] = "progress";
  line["step"] = s.step;
  line["total_steps"] = s.total_steps;
  line["epoch"] = s.epoch;
  line["loss"] = s.loss;
  if (s.accuracy) line["accuracy"] = *s.accuracy;
  line["images_per_second"] = s.images_per_second;
  if (s.left) line["seconds_left"] = s.left->value;
  if (!s.balance.empty()) line["balance"] = s.balance;
  return line.dump();
}

// Bytes that continue a UTF-8 character take no column.
int width(std::string_view text) {
  int columns = 0;
  for (const char c : text) columns += (static_cast<unsigned char>(c) & 0xC0U) != 0x80U ? 1 : 0;
  return columns;
}

}  // namespace

ProgressMode progress_mode(std::FILE* out, bool json) {
  if (json) return ProgressMode::json;
  const char* told = out == stdout ? std::getenv(kTerminal) : nullptr;
  if (told != nullptr) return *told == '1' ? ProgressMode::live : ProgressMode::plain;
  return ::isatty(::fileno(out)) != 0 ? ProgressMode::live : ProgressMode::plain;
}

std::string format_standing(const Standing& s, int columns) {
  std::vector<std::string> fields = {
      fmt::format("step {}/{}", s.step, s.total_steps),
      fmt::format("epoch {:.2f}/{:.4g}", s.epoch, s.epochs),
      s.loss < 1e4 ? fmt::format("loss {:.4f}", s.loss) : fmt::format("loss {:.2e}", s.loss),
  };
  if (s.accuracy) fields.push_back(fmt::format("acc {:.2f} %", 100 * *s.accuracy));
  fields.push_back(
      fmt::format("{:.{}f} images/s", s.images_per_second, s.images_per_second < 100 ? 1 : 0));
  if (s.left) fields.push_back(to_string(*s.left) + " left");
  if (!s.balance.empty()) fields.push_back(s.balance);
  std::string line;
  for (const std::string& field : fields) {
    const std::string_view gap = line.empty() ? "" : "  ";
    if (columns > 0 && width(line) + width(gap) + width(field) > columns) break;
    line.append(gap).append(field);
  }
  return line;
}

Progress::Progress(std::FILE* out, ProgressMode mode, ProgressOptions options)
    : out_(out), mode_(mode), options_(options) {}

Progress::~Progress() {
  if (line_open_) put("\n");
}

void Progress::update(const Standing& standing, Seconds at) {
  const Seconds interval =
      mode_ == ProgressMode::live ? options_.live_interval : options_.plain_interval;
  if (shown_at_ && at - *shown_at_ < interval) {
    held_back_ = standing;
    return;
  }
  shown_at_ = at;
  show(standing);
}

void Progress::message(std::string_view line) {
  if (mode_ == ProgressMode::json) return;
  put(fmt::format("{}{}\n", line_open_ ? kClearLine : "", line));
  line_open_ = false;
}

void Progress::json_line(std::string_view object) {
  if (mode_ == ProgressMode::json) put(fmt::format("{}\n", object));
}

void Progress::finish() {
  if (held_back_) show(*held_back_);
  if (line_open_) put("\n");
  line_open_ = false;
}

void Progress::show(const Standing& standing) {
  switch (mode_) {
    case ProgressMode::live:
      // The last column stays free: some terminals wrap as soon as it is written to.
      put(kClearLine + format_standing(standing, std::max(1, columns() - 1)));
      line_open_ = true;
      break;
    case ProgressMode::plain:
      put(format_standing(standing) + "\n");
      break;
    case ProgressMode::json:
      put(to_json(standing) + "\n");
      break;
  }
  held_back_.reset();
}

// A reader that went away is no reason to end a training, so failures are ignored.
void Progress::put(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), out_);
  std::fflush(out_);
}

int Progress::columns() const {
  if (options_.columns > 0) return options_.columns;
  constexpr int kUsual = 80;
  winsize size{};
  const bool known = ::ioctl(::fileno(out_), TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : kUsual;
}

}  // namespace convoy::train
