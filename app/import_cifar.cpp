// convoy import-cifar: used by scripts/get-data.

#include "convoy/data/cifar_sheets.hpp"

#include "app/verbs.hpp"

namespace convoy::app {

void add_import_cifar(CLI::App& app, Run& run) {
  auto* verb = app.add_subcommand(
      "import-cifar", "Turn CIFAR-10 image sheets (PNG) into the official binary files");
  auto from = std::make_shared<std::string>();
  auto to = std::make_shared<std::string>();
  verb->add_option("FROM", *from, "Folder with the sheets and labels")->required();
  verb->add_option("TO", *to, "Folder to write")->required();
  verb->callback([&run, from, to] {
    run = [from, to] {
      data::import_cifar_sheets(*from, *to);
      return 0;
    };
  });
}

}  // namespace convoy::app
