// convoy pack: a data set becomes one packed file; --list and --verify look into one.

#include "convoy/data/pack.hpp"

#include <atomic>
#include <csignal>
#include <cstdio>
#include <map>

#include <fmt/format.h>

#include "convoy/base/error.hpp"
#include "convoy/base/text.hpp"
#include "convoy/base/threads.hpp"
#include "convoy/base/units.hpp"
#include "convoy/train/progress.hpp"

#include "app/pack_progress.hpp"
#include "app/verbs.hpp"

namespace convoy::app {
namespace {

// A signal handler can reach nothing else. The first signal asks to stop, a second one ends the
// program at once, which does no harm either.
std::atomic<int> g_stop{0};

void on_stop(int number) {
  g_stop = number;
  std::signal(number, SIG_DFL);
}

struct PackArguments {
  std::string source;
  std::string to;
  std::string kind;
  int resize = 0;
  int quality = 90;
  double test_part = 0.1;
  int threads = 0;
  std::string bad = "stop";
  std::string list;
  bool verify = false;
};

/// Every bad image, by what is wrong.
void print_bad(const std::vector<data::LeftOut>& bad) {
  std::map<data::BadImage, std::vector<const data::LeftOut*>> by_reason;
  for (const data::LeftOut& one : bad) by_reason[one.what].push_back(&one);
  for (const auto& [what, images] : by_reason) {
    fmt::print(stderr, "{} {}:\n", images.size(), data::to_string(what));
    for (const data::LeftOut* one : images) {
      fmt::print(stderr, "  {}: {}\n", one->source, one->message);
    }
  }
}

int pack_verb(const PackArguments& a) {
  data::PackOptions options;
  options.source = a.source;
  options.to = a.to;
  options.kind = a.kind;
  options.resize = a.resize;
  options.quality = a.quality;
  options.test_part = a.test_part;
  options.threads = a.threads > 0 ? a.threads : usable_cores().size();
  options.skip_bad = a.bad == "skip";
  options.stop = &g_stop;
  std::signal(SIGINT, on_stop);
  std::signal(SIGTERM, on_stop);
  const Seconds begin = now();
  data::PackReport report;
  {
    PackProgress progress("packing");
    options.progress = [&progress](const data::PackStanding& standing) { progress(standing); };
    report = data::pack(options);
  }
  if (!report.others.empty()) {
    fmt::print(stderr, "{} not named like images left aside, such as {}\n",
               plural(static_cast<int64_t>(report.others.size()), "file"), report.others.front());
  }
  print_bad(report.bad);
  const std::string sitting = fmt::format(
      "{} of {} in {}{}", report.records, plural(report.total, "image"), to_string(now() - begin),
      report.taken_up > 0 ? fmt::format(" ({} of them in earlier sittings)", report.taken_up) : "");
  switch (report.ending) {
    case data::PackEnding::finished:
      fmt::print("packed {}\n{}", sitting, data::describe(data::PackedFile(a.to)));
      return 0;
    case data::PackEnding::stopped:
      fmt::print("stopped after {}; the same command goes on from there\n", sitting);
      return 128 + g_stop;
    case data::PackEnding::bad:
      break;
  }
  refuse(
      "{} of {} cannot be used (listed above), so {} was not written; mend or remove them, or "
      "leave them out by --bad skip, which goes on from here",
      report.bad.size(), plural(report.total, "image"), a.to);
}

int list_verb(const PackArguments& a) {
  const data::PackedFile file(a.list);
  fmt::print("{}", data::describe(file));
  if (!a.verify) return 0;
  std::vector<std::string> damaged;
  {
    PackProgress progress("verifying");
    damaged = data::verify_all(file, [&](const data::PackStanding& s) { progress(s); });
  }
  for (const std::string& message : damaged) fmt::print(stderr, "{}\n", message);
  if (!damaged.empty()) {
    refuse("{}: {} of {} damaged", a.list, damaged.size(), plural(file.size(), "record"));
  }
  fmt::print("verified     {}, all as they were packed\n", plural(file.size(), "record"));
  return 0;
}

void check_arguments(const PackArguments& a) {
  if (!a.list.empty()) {
    if (!a.source.empty() || !a.to.empty()) refuse("--list takes a packed file and nothing else");
    return;
  }
  if (a.verify) refuse("--verify goes with --list FILE");
  if (a.source.empty() || a.to.empty()) {
    refuse("pack needs a folder and the file to write: convoy pack SOURCE -o FILE");
  }
}

}  // namespace

void add_pack(CLI::App& app, Run& run) {
  auto* verb = app.add_subcommand(
      "pack", "Turn a folder of images, or an idx or CIFAR folder, into one packed file");
  auto a = std::make_shared<PackArguments>();
  verb->add_option("SOURCE", a->source,
                   "Folder: train/CLASS/*.jpg and val/CLASS/…, or CLASS/*.jpg, or idx or CIFAR "
                   "files");
  verb->add_option("-o,--output", a->to, "File to write; one that exists is not overwritten")
      ->type_name("FILE");
  verb->add_option("--kind", a->kind, "What SOURCE is (default: what it looks like)")
      ->check(CLI::IsMember({"folder", "idx", "cifar10", "cifar100"}));
  verb->add_option("--resize", a->resize,
                   "Reduce images whose short side is longer than this, as JPEG")
      ->type_name("PIXELS")
      ->check(CLI::Range(1, 65500));
  verb->add_option("--quality", a->quality, "Of JPEG, for images that are reduced (default: 90)")
      ->check(CLI::Range(1, 100));
  verb->add_option("--test-part", a->test_part,
                   "How much of each class becomes the test set, where SOURCE has none (default: "
                   "0.1)")
      ->type_name("PART")
      ->check(CLI::Range(0.0, 1.0));
  verb->add_option("--threads", a->threads, "Default: one for each core")
      ->check(CLI::Range(1, 1024));
  verb->add_option(
          "--bad", a->bad,
          "Images that cannot be used: write nothing (stop) or leave them out (skip); they "
          "are all listed in either case (default: stop)")
      ->check(CLI::IsMember({"stop", "skip"}));
  verb->add_option("--list", a->list, "Say what a packed file holds")->type_name("FILE");
  verb->add_flag("--verify", a->verify, "With --list: read every record and check it");
  verb->footer(
      "Interrupted, by Ctrl-C or in any other way, the same command goes on where it was.\n"
      "The format: docs/packed.md.");
  verb->callback([&run, a] {
    run = [a] {
      check_arguments(*a);
      return a->list.empty() ? pack_verb(*a) : list_verb(*a);
    };
  });
}

}  // namespace convoy::app
