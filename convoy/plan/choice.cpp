#include "convoy/plan/choice.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>

#include <coin/Cbc_C_Interface.h>

#include "convoy/base/error.hpp"

namespace convoy::plan {
namespace {

// The solver compares with absolute tolerances, so its numbers should be neither tiny nor huge.
constexpr double kByte = 1.0 / (1 << 20);
constexpr double kSecond = 1e3;

struct Delete {
  void operator()(Cbc_Model* model) const { Cbc_deleteModel(model); }
};
using Model = std::unique_ptr<Cbc_Model, Delete>;

/// A row of the program: Σ coefficients·columns (sense) right.
struct Row {
  std::vector<int> columns;
  std::vector<double> coefficients;

  void add(int column, double coefficient) {
    columns.push_back(column);
    coefficients.push_back(coefficient);
  }
  void put(Cbc_Model* model, char sense, double right) const {
    Cbc_addRow(model, "", static_cast<int>(columns.size()), columns.data(), coefficients.data(),
               sense, right);
  }
};

/// The program in CBC's terms: one binary column per option, then one for the shared workspace.
Model formulate(const std::vector<Item>& items, Workspace form, double bound) {
  Model model(Cbc_newModel());
  Cbc_setParameter(model.get(), "logLevel", "0");
  // CBC 2.10.8's preprocessing loses optima of programs as small as these (tests/plan/choice_test).
  Cbc_setParameter(model.get(), "preprocess", "off");
  int column = 0;
  for (const Item& item : items) {
    for (const Option& option : item.options) {
      Cbc_addCol(model.get(), "", 0, 1, option.time.value * kSecond, 1, 0, nullptr, nullptr);
      ++column;
    }
  }
  const int shared = column;
  Cbc_addCol(model.get(), "", 0, std::max(0.0, bound), 0, 0, 0, nullptr, nullptr);

  Row memory;
  memory.add(shared, 1);
  column = 0;
  for (const Item& item : items) {
    Row one;
    Row workspace;
    for (const Option& option : item.options) {
      const double kept = static_cast<double>(option.kept.value) * kByte;
      const double needed = static_cast<double>(option.workspace.value) * kByte;
      one.add(column, 1);
      workspace.add(column, needed);
      memory.add(column, form == Workspace::separate ? kept + needed : kept);
      ++column;
    }
    one.put(model.get(), 'E', 1);
    if (form == Workspace::separate) continue;
    workspace.add(shared, -1);
    workspace.put(model.get(), 'L', 0);
  }
  memory.put(model.get(), 'L', bound);
  return model;
}

std::vector<size_t> solve(const std::vector<Item>& items, Workspace form, double bound) {
  const Model model = formulate(items, form, bound);
  Cbc_solve(model.get());
  if (Cbc_isProvenOptimal(model.get()) == 0) return {};
  const double* solution = Cbc_getColSolution(model.get());
  std::vector<size_t> taken;
  for (const Item& item : items) {
    const auto* end = solution + item.options.size();
    taken.push_back(static_cast<size_t>(std::max_element(solution, end) - solution));
    solution = end;
  }
  return taken;
}

size_t smallest(const Item& item, Workspace form) {
  const auto need = [&](const Option& o) {
    return form == Workspace::separate ? o.kept + o.workspace : o.kept;
  };
  const auto best = std::min_element(
      item.options.begin(), item.options.end(), [&](const Option& a, const Option& b) {
        return std::pair(need(a), a.workspace) < std::pair(need(b), b.workspace);
      });
  return static_cast<size_t>(best - item.options.begin());
}

/// Every item's smallest option.
std::vector<size_t> all_smallest(const std::vector<Item>& items, Workspace form) {
  std::vector<size_t> taken;
  taken.reserve(items.size());
  for (const Item& item : items) taken.push_back(smallest(item, form));
  return taken;
}

}  // namespace

Choice tally(const std::vector<Item>& items, std::vector<size_t> taken, Workspace form) {
  check(items.size() == taken.size(), "an option is taken for every item");
  Choice choice;
  Bytes workspace;
  for (size_t i = 0; i < items.size(); ++i) {
    const Option& option = items[i].options.at(taken[i]);
    choice.time += option.time;
    choice.memory += option.kept;
    workspace = form == Workspace::separate ? workspace + option.workspace
                                            : std::max(workspace, option.workspace);
  }
  choice.memory += workspace;
  choice.taken = std::move(taken);
  return choice;
}

std::optional<Choice> choose_exactly(const std::vector<Item>& items, Workspace form, Bytes bound) {
  if (items.empty()) return tally(items, {}, form);
  // The solver may exceed the bound by its tolerance; then it is asked again for a little less.
  double asked = static_cast<double>(bound.value) * kByte;
  for (int tries = 0; tries < 4; ++tries) {
    std::vector<size_t> taken = solve(items, form, asked);
    if (taken.empty()) return std::nullopt;
    Choice choice = tally(items, std::move(taken), form);
    if (choice.memory <= bound) return choice;
    asked -= 2 * static_cast<double>((choice.memory - bound).value) * kByte;
  }
  return std::nullopt;
}

std::optional<Choice> choose_greedily(const std::vector<Item>& items, Workspace form, Bytes bound) {
  std::vector<size_t> taken = all_smallest(items, form);
  if (tally(items, taken, form).memory > bound) return std::nullopt;
  const auto saving = [&](size_t i) {
    const auto& options = items[i].options;
    const auto fastest =
        std::min_element(options.begin(), options.end(),
                         [](const Option& a, const Option& b) { return a.time < b.time; });
    return options[taken[i]].time - fastest->time;
  };
  std::vector<size_t> order(items.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return saving(b) < saving(a); });
  for (const size_t i : order) {
    for (size_t option = 0; option < items[i].options.size(); ++option) {
      if (!(items[i].options[option].time < items[i].options[taken[i]].time)) continue;
      const size_t before = taken[i];
      taken[i] = option;
      if (tally(items, taken, form).memory > bound) taken[i] = before;
    }
  }
  return tally(items, std::move(taken), form);
}

Bytes least_memory(const std::vector<Item>& items, Workspace form) {
  if (form == Workspace::separate) return tally(items, all_smallest(items, form), form).memory;
  // A larger shared workspace may save kept memory: try every limit on it.
  std::vector<Bytes> limits;
  for (const Item& item : items) {
    for (const Option& option : item.options) limits.push_back(option.workspace);
  }
  Bytes least{std::numeric_limits<int64_t>::max()};
  for (const Bytes limit : limits) {
    Bytes sum = limit;
    bool possible = true;
    for (const Item& item : items) {
      Bytes kept{std::numeric_limits<int64_t>::max()};
      for (const Option& option : item.options) {
        if (option.workspace <= limit) kept = std::min(kept, option.kept);
      }
      possible = possible && kept.value != std::numeric_limits<int64_t>::max();
      if (possible) sum += kept;
    }
    if (possible) least = std::min(least, sum);
  }
  return limits.empty() ? Bytes{} : least;
}

}  // namespace convoy::plan
