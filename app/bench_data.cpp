// convoy bench data: how fast samples come from a packed file to the network, stage by stage and
// beside the bandwidth that bounds each; with several workers, how fast records change hands.

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "convoy/base/error.hpp"
#include "convoy/base/text.hpp"
#include "convoy/base/threads.hpp"
#include "convoy/comm/mpi.hpp"
#include "convoy/data/pack.hpp"
#include "convoy/train/agree.hpp"

#include "app/data_shuffle.hpp"
#include "app/data_stages.hpp"
#include "app/launch/launch.hpp"
#include "app/pack_progress.hpp"
#include "app/verbs.hpp"
#include "app/worker.hpp"

namespace convoy::app {
namespace {

namespace fs = std::filesystem;

struct DataArguments {
  std::string path;
  int64_t size = 224;
  int threads = 0;
  double seconds = 1;
  std::string segment;
  bool json = false;
  LaunchOptions launch;
};

/// The packed file; a folder of images is packed first, as training does it.
fs::path packed_file(const DataArguments& a, int threads) {
  if (!fs::exists(a.path)) {
    refuse("there is no {}; expected a packed file (made by `convoy pack`) or a folder of images",
           a.path);
  }
  if (!fs::is_directory(a.path)) return a.path;
  job::Data folder;
  folder.kind = "folder";
  folder.path = a.path;
  PackProgress progress("packing");
  const std::string note = data::pack_first(
      folder, threads, nullptr, [&](const data::PackStanding& standing) { progress(standing); });
  if (!note.empty()) fmt::print(stderr, "{}\n", note);
  return data::packed_path(a.path);
}

nlohmann::json to_json(const Stage& stage) {
  const Pace& pace = stage.pace;
  const auto per_second = [&](int64_t count) { return static_cast<double>(count) / pace.seconds; };
  nlohmann::json row{{"stage", stage.name},
                     {"threads", stage.threads},
                     {"bytes_in_per_second", per_second(pace.in)},
                     {"bytes_out_per_second", per_second(pace.out)},
                     {"cpu_per_second", pace.cpu / pace.seconds}};
  if (pace.images > 0) {
    row["images_per_second"] = per_second(pace.images);
    row["images_per_cpu_second"] = static_cast<double>(pace.images) / pace.cpu;
  }
  if (!stage.bound.empty()) {
    row["bound"] = stage.bound;
    row["compared_by"] = stage.waits ? "clock" : "cpu";
    row["bytes_compared_per_second"] = stage.speed();
    row["bound_bytes_per_second"] = stage.bound_speed;
    row["of_bound"] = stage.of_bound();
  }
  return row;
}

void print_json(const fs::path& file, const DataArguments& a, const StageTable& table) {
  nlohmann::json rows = nlohmann::json::array();
  for (const Stage& stage : table.stages) rows.push_back(to_json(stage));
  fmt::print("{}\n", nlohmann::json{{"file", file.string()},
                                    {"images", table.images},
                                    {"bytes", table.bytes.value},
                                    {"size", a.size},
                                    {"cached_before", table.cache.before},
                                    {"cached_after_forgetting", table.cache.after},
                                    {"stages", rows}}
                         .dump());
}

/// Whether what was read "forgotten" came from the disk.
std::string describe(const PageCache& cache) {
  const std::string text = fmt::format(
      "page cache: {:.0f} % of the file was there, {:.0f} % after the system was asked to "
      "forget it",
      100 * cache.before, 100 * cache.after);
  constexpr double kLittle = 0.05;
  return cache.after > kLittle
             ? text + ": what is called forgotten below was NOT read from a disk alone"
             : text;
}

void print_table(const fs::path& file, const DataArguments& a, const StageTable& table) {
  fmt::print("{}: {}, {} of records; input {}×{}\n{}\n\n", file.string(),
             plural(table.images, "training image"), to_string(table.bytes), a.size, a.size,
             describe(table.cache));
  fmt::print("{:<38} {:>7} {:>10} {:>12} {:>9} {:>9}  {}\n", "stage", "threads", "images/s",
             "per CPU s", "MB/s in", "MB/s out", "of what bounds it");
  for (const Stage& stage : table.stages) {
    const Pace& pace = stage.pace;
    const auto rate = [&](double seconds) {
      return pace.images > 0 ? fmt::format("{:.0f}", static_cast<double>(pace.images) / seconds)
                             : std::string("–");
    };
    const auto megabytes = [&](int64_t bytes) {
      return static_cast<double>(bytes) / pace.seconds / 1e6;
    };
    const std::string bound =
        stage.bound.empty() ? ""
                            : fmt::format("{:.1f} % of {}", 100 * stage.of_bound(), stage.bound);
    fmt::print("{:<38} {:>7} {:>10} {:>12} {:>9.0f} {:>9.0f}  {}\n",
               fmt::format("{}: {}", stage.name, stage.what), stage.threads, rate(pace.seconds),
               rate(pace.cpu), megabytes(pace.in), megabytes(pace.out), bound);
  }
  fmt::print(
      "\nimages/s and MB/s are by the clock; per CPU s is by the CPU time of the threads, which "
      "changes little\nwhen other programs use the same cores. Parts of what bounds a stage are by "
      "CPU time, too, but for\nreading from disk. Median of three turns.\n");
}

int bench_stages(const DataArguments& a) {
  StageOptions options;
  options.threads = a.threads > 0 ? a.threads : usable_cores().size();
  options.file = packed_file(a, options.threads);
  options.size = a.size;
  options.budget = {a.seconds};
  const StageTable table = measure_stages(options);
  if (a.json) {
    print_json(options.file, a, table);
  } else {
    print_table(options.file, a, table);
  }
  return 0;
}

void print_shuffle(const DataArguments& a, const ShuffleSpeed& s, int ranks) {
  if (a.json) {
    fmt::print("{}\n", nlohmann::json{{"ranks", ranks},
                                      {"images", s.images},
                                      {"shuffle",
                                       {{"held_bytes", s.held.value},
                                        {"message_bytes", s.segment.value},
                                        {"shuffles", s.shuffles},
                                        {"moved_bytes", s.moved.value},
                                        {"bytes_per_second_and_rank", s.per_second},
                                        {"mpi_bytes_per_second_and_rank", s.mpi_per_second},
                                        {"ratio", s.ratio},
                                        {"least_ratio", s.least_ratio},
                                        {"largest_ratio", s.largest_ratio}}}}
                           .dump());
    return;
  }
  fmt::print(
      "{} hold {} ({}); messages of {}\n"
      "shuffle      {:.3f} GB/s come to each rank; {} change hands at a time, {} measured\n"
      "MPI alone    {:.3f} GB/s between the same ranks, as many bytes in messages as long\n"
      "ratio        {:.2f} [{:.2f} – {:.2f}]\n",
      plural(ranks, "rank"), plural(s.images, "training image"), to_string(s.held),
      to_string(s.segment), s.per_second / 1e9, to_string(s.moved), plural(s.shuffles, "time"),
      s.mpi_per_second / 1e9, s.ratio, s.least_ratio, s.largest_ratio);
}

int bench_shuffle(const DataArguments& a, const sync::Team& team) {
  ShuffleOptions options;
  options.threads = a.threads > 0 ? a.threads : 1;
  options.budget = {a.seconds};
  data::Source source;
  train::together(team, "packing the images", [&] {
    if (team.rank() == 0) packed_file(a, usable_cores().size());
  });
  train::together(team, "opening the data", [&] {
    if (!a.segment.empty()) options.segment = parse_bytes(a.segment);
    const bool folder = fs::is_directory(a.path);
    source = open_for_bench(folder ? data::packed_path(a.path) : fs::path(a.path), a.size);
  });
  const ShuffleSpeed speed = measure_shuffle(source, team, options);
  if (team.rank() == 0) print_shuffle(a, speed, team.size());
  return 0;
}

int bench_data(const DataArguments& a, const Arguments& called) {
  if (wanted(a.launch)) return launch(a.launch, called);
  if (!comm::started_by_launcher()) return bench_stages(a);
  comm::MpiSession session;
  const sync::Team team(session.world(), Seconds{60});
  return as_worker(session, team,
                   [&] { return team.size() == 1 ? bench_stages(a) : bench_shuffle(a, team); });
}

}  // namespace

void add_bench_data(CLI::App& bench, Run& run, const Arguments& called) {
  auto* verb = bench.add_subcommand(
      "data", "Samples on their way from file to network, stage by stage, beside what bounds them");
  auto a = std::make_shared<DataArguments>();
  verb->add_option("PATH", a->path,
                   "Packed file, or a folder of images, which is packed first (as kind folder)")
      ->required();
  verb->add_option("--size", a->size, "Height and width of what the network reads")
      ->type_name("PIXELS")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  verb->add_option("--threads", a->threads,
                   "Threads that stages run on, besides one (default: every usable core)")
      ->check(CLI::Range(1, 1024));
  verb->add_option("--seconds", a->seconds, "For each stage, in three turns")
      ->check(CLI::Range(0.001, 3600.0))
      ->capture_default_str();
  verb->add_option("--segment", a->segment,
                   "With several workers: memory of one while records change hands, such as 1MiB; "
                   "messages have half of it (default: by the data, at most 64MiB)");
  verb->add_flag("--json", a->json, "Print one JSON object");
  add_launch_options(*verb, a->launch);
  verb->footer(
      "Alone: reading, decoding, preparing and loading. With several workers (--workers, mpirun): "
      "the\nshuffle, records that change hands, beside MPI's own messages. At most the first GiB "
      "of the\ntraining images is used. Nothing is written, but for the packed file of a folder.");
  verb->callback([&run, a, called] { run = [a, called] { return bench_data(*a, called); }; });
}

}  // namespace convoy::app
