#include "convoy/train/classifier.hpp"

#include <algorithm>
#include <numeric>

#include "convoy/base/error.hpp"
#include "convoy/base/text.hpp"
#include "convoy/sync/split_tail.hpp"
#include "convoy/train/async_steps.hpp"

namespace convoy::train {
namespace {

bool is_split(const job::Job& job, int workers) {
  return workers > 1 && job.parallel.classifier != "data";
}

int copies_of(const job::Job& job) {
  return job.parallel.classifier == "hybrid" ? static_cast<int>(job.parallel.copies) : 1;
}

}  // namespace

void check_classifier(const job::Job& job, const engine::Program& program,
                      const optim::Optimizer& optimizer, const sync::Team& team) {
  if (!is_split(job, team.size())) return;
  const std::string& wish = job.parallel.classifier;
  if (!program.tail()) {
    refuse(
        "parallel.classifier: {} is for linear layers (with ReLU and dropout) between what comes "
        "before them and a softmax; {} does not end so",
        wish, program.graph().name());
  }
  const auto most = static_cast<int64_t>(program.tail()->layers.size());
  if (job.parallel.layers > most) {
    refuse("parallel.layers: {} ends in {}", program.graph().name(), plural(most, "linear layer"));
  }
  const int together = in_groups(job, team.size())
                           ? static_cast<int>(layout_of(job, team).members.front().size())
                           : team.size();
  if (together % copies_of(job) != 0) {
    refuse("parallel.copies: {} cannot have {} of the classifier in equal parts",
           plural(together, "worker"), plural(copies_of(job), "instance"));
  }
  if (optimizer.needs_norms() || job.train.clip_norm > 0) {
    refuse(
        "parallel.classifier: {} leaves nobody with a whole gradient, whose norm lars and "
        "train.clip_norm need",
        wish);
  }
  if (is_asynchronous(job.sync, team.size())) {
    refuse("parallel.classifier: {} is not for sync.mode {}", wish, job.sync.mode);
  }
}

void Classifier::prepare(sync::StepperOptions& options) {
  if (!is_split(p_.job, team_.size())) return;
  options.tail_layers = static_cast<int>(p_.job.parallel.layers);
  options.make_tail = [this](const sync::ModelArrays& arrays) { return make(arrays); };
}

std::unique_ptr<sync::TailPart> Classifier::make(const sync::ModelArrays& arrays) {
  const engine::Program& program = *p_.planned.program;
  const job::Train& train = p_.job.train;
  sync::SplitTailOptions tail{copies_of(p_.job), p_.planned.plan.batch, train.seed, train.decay_all,
                              team_.deadline()};
  tail.layers = static_cast<int>(p_.job.parallel.layers);
  if (p_.job.parallel.classifier != "merged") {
    if (groups_ == nullptr) {
      return std::make_unique<sync::SplitTail>(*team_.world(), program, *p_.optimizer, tail,
                                               arrays.weights, arrays.states);
    }
    // A server alone never steps.
    if (groups_->serves_only()) {
      return std::make_unique<sync::SplitTail>(program, *p_.optimizer, tail, arrays.weights,
                                               arrays.states);
    }
    tail.remote = &groups_->servers();
    return std::make_unique<sync::SplitTail>(groups_->members(), program, *p_.optimizer, tail,
                                             arrays.weights, arrays.states);
  }
  sync::MergedTailOptions options;
  options.tail = tail;
  std::optional<int> group = 0;
  bool writes = team_.local() == 0;
  if (groups_ != nullptr) {
    const sync::GroupLayout& layout = groups_->layout();
    options.groups = layout.members;
    if (p_.job.cluster.own_servers) options.rank = layout.servers.front();
    const int own = layout.group[static_cast<size_t>(team_.rank())];
    group = own == sync::GroupLayout::kNone ? std::nullopt : std::optional(own);
    writes = groups_->serves_only() || groups_->team().local() == 0;
  } else {
    options.groups.resize(1);
    options.groups[0].resize(static_cast<size_t>(team_.size()));
    std::iota(options.groups[0].begin(), options.groups[0].end(), 0);
  }
  auto made = std::make_unique<sync::MergedTail>(team_, group, program, *p_.optimizer, options,
                                                 arrays.weights, arrays.states, writes);
  merged_ = made.get();
  return made;
}

void Classifier::load() {
  if (merged_ != nullptr) merged_->load();
}

}  // namespace convoy::train
