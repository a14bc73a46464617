#include "convoy/plan/report.hpp"

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "convoy/base/text.hpp"
#include "convoy/base/version.hpp"
#include "convoy/plan/chart.hpp"

namespace convoy::plan {
namespace {

constexpr size_t kShown = 8;  // runners-up

constexpr const char* kStyle = R"(
:root { color-scheme: light dark; --ink: #1d2429; --paper: #fff; --faint: #d8dde1; --soft: #5f6b75; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6eaed; --paper: #16191c; --faint: #333a40; --soft: #9aa5ae; }
}
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
       max-width: 1360px; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin-bottom: 0; } h2 { font-size: 1.1rem; margin-top: 2rem; }
p.sub { color: var(--soft); margin-top: .2rem; }
p.plan { font-size: 1.15rem; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(420px, 1fr)); gap: 1rem; }
figure { margin: 0; } svg { width: 100%; height: auto; }
svg text { font: 12px system-ui, sans-serif; fill: var(--ink); }
svg text.title { font-weight: 600; font-size: 14px; } svg text.tick { fill: var(--soft); }
svg text.legend { font-weight: 600; }
svg line.grid { stroke: var(--faint); } svg line.mark { stroke: var(--soft); stroke-dasharray: 3 3; }
table { border-collapse: collapse; } th, td { text-align: right; padding: .2rem .8rem; }
th:first-child, td:first-child { text-align: left; padding-left: 0; }
th { border-bottom: 1px solid var(--faint); color: var(--soft); font-weight: 500; }
tr.best td { font-weight: 600; }
)";

std::string ending(const std::string& bottleneck) {
  static const std::map<std::string, std::string> kWords = {{"computing", "its workers' computing"},
                                                            {"data", "the preparing of samples"},
                                                            {"link", "the links"},
                                                            {"servers", "the servers"},
                                                            {"latency", "the latency of messages"}};
  return kWords.at(bottleneck);
}

/// Samples in a second, by all groups.
double rate(const Candidate& c) {
  return static_cast<double>(c.configuration.batch) / c.forecast.update.value;
}

std::string row(const Candidate& c, const Candidate& best, bool first) {
  return fmt::format(
      "<tr{}><td>{}</td><td>{}</td><td>{}</td><td>{:.0f}</td><td>{:.2f}</td><td>{:.2f}</td>"
      "<td>{}</td><td>{}</td><td>{}</td></tr>\n",
      first ? " class='best'" : "", escaped(describe(c.configuration)), to_string(c.forecast.step),
      to_string(c.forecast.update), rate(c), c.updates, c.time.value / best.time.value,
      to_string(c.forecast.sent), to_string(c.forecast.memory), c.forecast.bottleneck());
}

std::string table(const SearchResult& found) {
  std::string html =
      "<table><tr><th>configuration</th><th>step</th><th>update</th><th>samples/s</th>"
      "<th>updates ×</th><th>time ×</th><th>sent</th><th>memory</th><th>limit</th></tr>\n";
  for (size_t i = 0; i < std::min(kShown, found.ranked.size()); ++i) {
    html += row(found.ranked[i], found.best(), i == 0);
  }
  return html + "</table>\n";
}

Chart scaling_chart(const ReportData& d) {
  Chart chart;
  chart.title = "Scaling: the best with so many workers";
  chart.x = "workers";
  chart.y = "times as fast as one";
  chart.doubling = d.cluster->size() > 16;
  chart.mark = d.found->best().configuration.workers;
  Series event{"predicted", {}, false};
  Series lemma{"without overlap (lemmas)", {}, true};
  Series ideal{"in proportion", {}, true};
  const auto& all = d.found->by_workers;
  const LemmaModel lemmas(*d.workload, *d.cluster);
  const double first = all.front().time.value * all.front().configuration.workers;
  for (const Candidate& c : all) {
    const double workers = c.configuration.workers;
    event.points.emplace_back(workers, first / c.time.value);
    const double by_lemma = lemmas.forecast(c.configuration).update.value * c.updates;
    lemma.points.emplace_back(workers, first / by_lemma);
    ideal.points.emplace_back(workers, workers);
  }
  chart.series = {event, lemma, ideal};
  return chart;
}

/// Hardware and statistical efficiency by the number of groups, for the chosen number of workers.
Chart groups_chart(const ReportData& d) {
  Chart chart;
  chart.title = "Groups: time of an update × updates needed";
  chart.x = "groups";
  chart.y = "in those of one group";
  chart.doubling = true;
  const Configuration& best = d.found->best().configuration;
  chart.mark = best.groups;
  const EventModel model(*d.workload, *d.cluster);
  Series hardware{"time of an update", {}, false};
  Series statistical{"updates needed", {}, false};
  Series product{"time to the target", {}, false};
  double one = 0;
  for (int groups = 1; groups <= best.workers; groups *= 2) {
    if (best.workers % groups != 0) break;
    Configuration c = best;
    c.groups = groups;
    if (c.together() % std::max(1, c.copies) != 0 || c.classifier == "hybrid") {
      c.classifier = "data";
      c.copies = 1;
      c.layers = 0;
    }
    const double update = model.forecast(c).update.value;
    if (groups == 1) one = update;
    const double penalty = group_penalty(groups, d.options.statistics.momentum);
    hardware.points.emplace_back(groups, update / one);
    statistical.points.emplace_back(groups, penalty);
    product.points.emplace_back(groups, update / one * penalty);
  }
  chart.series = {hardware, statistical, product};
  return chart;
}

Chart memory_chart(const ReportData& d) {
  Chart chart;
  chart.title = "Memory of a worker, by lanes";
  chart.x = "lanes";
  chart.y = "GiB";
  constexpr double kGib = 1 << 30;
  Series all{"needed", {}, false};
  Series limit{"of the smallest node", {}, true};
  int64_t least = 0;
  int cores = 1;
  for (const NodeType& n : d.cluster->nodes) {
    if (n.memory.value > 0 && (least == 0 || n.memory.value < least)) least = n.memory.value;
    cores = std::max(cores, n.cores);
  }
  for (int lanes = 1; lanes <= std::max(2, cores); ++lanes) {
    const Bytes sum = d.workload->model_memory + lanes * d.workload->grain_memory;
    all.points.emplace_back(lanes, static_cast<double>(sum.value) / kGib);
    if (least > 0) limit.points.emplace_back(lanes, static_cast<double>(least) / kGib);
  }
  chart.series = {all};
  if (least > 0) chart.series.push_back(limit);
  chart.mark = d.found->best().configuration.lanes;
  return chart;
}

std::string advice_text(const ReportData& d) {
  std::string text;
  for (const Advice& a : d.advice) {
    if (a.gain < 1.01) continue;
    text += fmt::format("{}{}: {:.2f} times as fast", text.empty() ? "" : "; ", a.what, a.gain);
  }
  return text;
}

}  // namespace

std::vector<std::string> settings_of(const Configuration& c) {
  std::vector<std::string> all = {fmt::format("train.batch={}", c.batch),
                                  fmt::format("cluster.groups={}", c.groups),
                                  fmt::format("parallel.classifier={}", c.classifier)};
  if (c.servers > 0) all.push_back(fmt::format("cluster.servers={}", c.servers));
  if (c.own_servers && c.groups > 1) all.emplace_back("cluster.own_servers=true");
  if (c.layers > 0) all.push_back(fmt::format("parallel.layers={}", c.layers));
  if (c.classifier == "hybrid") all.push_back(fmt::format("parallel.copies={}", c.copies));
  if (c.groups > 1 || c.classifier != "data") all.emplace_back("sync.reproducible=false");
  return all;
}

std::string describe(const ReportData& d) {
  const Candidate& best = d.found->best();
  std::string text = fmt::format("plan    {} on {}: {}\n", d.workload->model, d.cluster->name,
                                 describe(best.configuration));
  text += fmt::format(
      "        {} a step, {:.0f} samples/s; {} computing, {} waiting; {} sent by a worker\n",
      to_string(best.forecast.step), rate(best), to_string(best.forecast.computing),
      to_string(best.forecast.waiting), to_string(best.forecast.sent));
  text += fmt::format("limit   {}\n", ending(best.forecast.bottleneck()));
  if (!advice_text(d).empty()) text += fmt::format("helps   {}\n", advice_text(d));
  text += fmt::format("others  (of {} tried{})\n", d.found->tried,
                      d.found->too_large > 0
                          ? fmt::format("; {} too large for the memory", d.found->too_large)
                          : "");
  for (size_t i = 1; i < std::min(kShown, d.found->ranked.size()); ++i) {
    const Candidate& c = d.found->ranked[i];
    text += fmt::format("  {:5.2f}× {} ({} a step)\n", c.time.value / best.time.value,
                        describe(c.configuration), to_string(c.forecast.step));
  }
  text += "workers";
  for (const Candidate& c : d.found->by_workers) {
    text += fmt::format(" {}: {:.2f}×", c.configuration.workers,
                        d.found->by_workers.front().time.value / c.time.value);
  }
  return text + "\n";
}

std::string report_html(const ReportData& d) {
  const Candidate& best = d.found->best();
  ForecastOptions options;
  options.spans = true;
  const StepForecast course =
      EventModel(*d.workload, *d.cluster, options).forecast(best.configuration);
  std::string html = fmt::format(
      "<!DOCTYPE html>\n<html lang='en'><head><meta charset='utf-8'>"
      "<meta name='viewport' content='width=device-width'>"
      "<link rel='icon' href='data:,'><title>{} on {}</title><style>{}</style></head><body>\n",
      escaped(d.workload->model), escaped(d.cluster->name), kStyle);
  html += fmt::format("<h1>{} on {}</h1>\n<p class='sub'>Times {}; {}. Convoy {}.</p>\n",
                      escaped(d.workload->model), escaped(d.cluster->name),
                      escaped(d.workload->origin), plural(d.cluster->size(), "node"), version());
  html += fmt::format(
      "<p class='plan'><b>{}</b>: {} a step, {:.0f} samples/s. What limits it: {}.</p>\n",
      escaped(describe(best.configuration)), to_string(best.forecast.step), rate(best),
      ending(best.forecast.bottleneck()));
  if (!advice_text(d).empty()) {
    html += fmt::format("<p>What would help: {}.</p>\n", escaped(advice_text(d)));
  }
  std::string settings;
  for (const std::string& s : settings_of(best.configuration)) settings += " --set " + s;
  html += fmt::format("<p><code>convoy train JOB --workers {}{}</code></p>\n",
                      best.configuration.processes(), escaped(settings));
  html += "<h2>What was compared</h2>\n" + table(*d.found);
  html += "<h2>Why</h2>\n<div class='charts'>\n";
  html += draw(scaling_chart(d));
  html += draw_timeline(course.spans, "A step and the beginning of the next, predicted");
  html += draw(groups_chart(d));
  html += draw(memory_chart(d));
  html += "</div>\n";
  if (!d.cluster->note.empty()) {
    html += fmt::format("<h2>The cluster</h2>\n<p>{}</p>\n", escaped(d.cluster->note));
  }
  return html + "</body></html>\n";
}

}  // namespace convoy::plan
