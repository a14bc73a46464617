#pragma once
// Small helpers for messages to people.

#include <string>
#include <string_view>
#include <vector>

namespace convoy {

/// The candidate nearest to `word` by edit distance, or "" if none is near enough to be meant.
std::string nearest(std::string_view word, const std::vector<std::string>& candidates);

/// "a, b, c"
std::string join(const std::vector<std::string>& words, std::string_view separator = ", ");

}  // namespace convoy
