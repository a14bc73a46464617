#include "app/worker.hpp"

#include <fmt/format.h>

#include "convoy/base/error.hpp"
#include "convoy/train/agree.hpp"

namespace convoy::app {

int as_worker(comm::MpiSession& session, const sync::Team& team, const std::function<int()>& verb) {
  int code = 1;
  std::string text;
  try {
    return verb();
  } catch (const train::AgreedFailure& failure) {
    text = failure.what();
    if (!text.empty()) fmt::print(stderr, "convoy: {}\n", text);
    return failure.code();
  } catch (const InputError& error) {
    text = error.what();
    code = 2;
  } catch (const std::exception& error) {
    text = error.what();
  }
  if (team.size() == 1) {
    fmt::print(stderr, "convoy: {}\n", text);
    return code;
  }
  const std::string name = team.name(team.rank());
  fmt::print(stderr, "convoy: {}{}\n", text.starts_with(name) ? "" : name + ": ", text);
  std::fflush(nullptr);
  session.abort(code);
}

}  // namespace convoy::app
