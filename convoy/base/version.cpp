#include "convoy/base/version.hpp"

namespace convoy {

std::string version() {
  return CONVOY_VERSION;
}

}  // namespace convoy
