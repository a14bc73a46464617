#include <algorithm>
#include <cstdio>
#include <exception>

#include <fmt/ranges.h>

#include "convoy/base/error.hpp"
#include "convoy/base/text.hpp"
#include "convoy/base/version.hpp"

#include "app/launch/launch.hpp"
#include "app/verbs.hpp"

namespace {

/// CLI11 only says that a verb is missing when the one given is none.
void refuse_unknown_verb(const CLI::App& app, const std::string& verb) {
  std::vector<std::string> verbs;
  for (const CLI::App* known : app.get_subcommands([](const CLI::App*) { return true; })) {
    verbs.push_back(known->get_name());
  }
  if (verb.starts_with("-") || std::find(verbs.begin(), verbs.end(), verb) != verbs.end()) return;
  const std::string near = convoy::nearest(verb, verbs);
  convoy::refuse("there is no verb '{}'{}; there are: {}", verb,
                 near.empty() ? "" : fmt::format(", did you mean '{}'?", near),
                 fmt::join(verbs, ", "));
}

}  // namespace

int main(int argc, char** argv) {
  using namespace convoy;
  CLI::App app("Convoy trains neural networks on clusters of ordinary machines.", "convoy");
  app.set_version_flag("--version", "convoy " + version());
  app.require_subcommand(1);
  app.footer(
      "Exit codes: 0 done, 1 failed, 2 wrong usage or input, 130/143 stopped by a signal after "
      "saving.\nEach verb has its own --help.");
  app::Run run;
  const app::Arguments called = app::without_launch_options(argc, argv);
  app::add_train(app, run, called);
  app::add_eval(app, run);
  app::add_plan(app, run, called);
  app::add_simulate(app, run);
  app::add_tune(app, run);
  app::add_bench(app, run, called);
  app::add_config(app, run);
  app::add_info(app, run, called);
  app::add_pack(app, run);
  app::add_import_cifar(app, run);
  try {
    if (argc > 1) refuse_unknown_verb(app, argv[1]);
    app.parse(argc, argv);
    return run();
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  } catch (const InputError& error) {
    fmt::print(stderr, "convoy: {}\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    fmt::print(stderr, "convoy: {}\n", error.what());
    return 1;
  }
}
