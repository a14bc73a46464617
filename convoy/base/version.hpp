#pragma once

#include <string>

namespace convoy {

/// "0.1.0"
std::string version();

}  // namespace convoy
