#pragma once
// A small file of /proc or of a control group that is read again and again.

#include <filesystem>
#include <string>
#include <string_view>

namespace convoy {

/// Opened once; every text() is what the system says at that moment. Never throws for lack of a
/// file: its text is then empty.
class KeptFile {
 public:
  explicit KeptFile(std::filesystem::path path);
  ~KeptFile();
  KeptFile(KeptFile&& other) noexcept;
  KeptFile& operator=(KeptFile&& other) noexcept;
  KeptFile(const KeptFile&) = delete;
  KeptFile& operator=(const KeptFile&) = delete;

  /// The whole content; valid as long as `buffer` is not touched.
  std::string_view text(std::string& buffer) const;
  /// Tries again to open it where that failed, or where it was there and is gone.
  void reopen();
  bool open() const { return descriptor_ >= 0; }

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
};

/// Cuts the next word (up to a space or a line's end) off the front of `text`; empty at the end.
std::string_view next_word(std::string_view& text);
/// Cuts the next line off, without its end.
std::string_view next_line(std::string_view& text);
/// `word` as a number; `otherwise` if it is none.
double to_number(std::string_view word, double otherwise);
/// The number after `key` in lines of "key number"; `otherwise` if there is no such line.
double number_after(std::string_view text, std::string_view key, double otherwise);

}  // namespace convoy
