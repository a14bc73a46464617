#include "convoy/train/checkpoint.hpp"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "convoy/base/error.hpp"

#include "tests/train/folder.hpp"

namespace convoy::train {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class CheckpointFile : public InFolder {
 protected:
  static Checkpoint sample() {
    Checkpoint c;
    c.at = {.step = 1234,
            .position = 157952,
            .seed = UINT64_MAX,
            .batch = 128,
            .grain = 16,
            .model = "resnet-20",
            .model_hash = 0xFEDCBA9876543210U,
            .data_fingerprint = 42,
            .best_metric = 0.1 + 0.2,
            .best_step = 1000,
            .evals_since_best = 2,
            .elapsed = {1e-3 / 3}};
    c.weights = {{"fc.weight", {2, 2}, {1, 2, 3, 4}}, {"fc.bias", {2}, {5, 6}}};
    c.buffers = {{"bn.running_mean", {2}, {7, 8}}};
    c.states["momentum"] = {{"fc.weight", {2, 2}, {-1, -2, -3, -4}}, {"fc.bias", {2}, {-5, -6}}};
    return c;
  }
  static Expected expected() {
    return {{{"fc.weight", {2, 2}}, {"fc.bias", {2}}}, {{"bn.running_mean", {2}}}, {"momentum"}};
  }
  std::filesystem::path saved(const Checkpoint& checkpoint = sample()) const {
    save(folder_ / "last.safetensors", checkpoint);
    return folder_ / "last.safetensors";
  }
  static void save(const std::filesystem::path& path, const Checkpoint& checkpoint) {
    CheckpointTensors tensors;
    for (const NamedTensor& t : checkpoint.weights) tensors.weights.push_back(view(t));
    for (const NamedTensor& t : checkpoint.buffers) tensors.buffers.push_back(view(t));
    for (const auto& [state, of_state] : checkpoint.states) {
      for (const NamedTensor& t : of_state) tensors.states[state].push_back(view(t));
    }
    save_checkpoint(path, checkpoint.at, tensors);
  }
  std::string refusal(const Expected& wanted) const {
    return message_of<InputError>([&] { load_checkpoint(saved(), wanted); });
  }
};

TEST_F(CheckpointFile, ComesBackWhole) {
  const Checkpoint loaded = load_checkpoint(saved(), expected());
  EXPECT_EQ(loaded.at, sample().at);
  EXPECT_EQ(loaded.weights, sample().weights);
  EXPECT_EQ(loaded.buffers, sample().buffers);
  EXPECT_EQ(loaded.states, sample().states);
}

TEST_F(CheckpointFile, RemembersThatThereIsNoBestYet) {
  Checkpoint checkpoint = sample();
  checkpoint.at.best_metric = Progression().best_metric;
  EXPECT_EQ(load_checkpoint(saved(checkpoint), expected()).at, checkpoint.at);
}

TEST_F(CheckpointFile, ComesInTheOrderTheModelExpects) {
  Expected other = expected();
  std::swap(other.weights[0], other.weights[1]);
  const Checkpoint loaded = load_checkpoint(saved(), other);
  EXPECT_EQ(loaded.weights[0].name, "fc.bias");
  EXPECT_EQ(loaded.states.at("momentum")[0].values, (std::vector<float>{-5, -6}));
}

TEST_F(CheckpointFile, ListsEveryWayInWhichItDoesNotFit) {
  Expected other = expected();
  other.weights[0].shape = {2, 3};
  other.weights[1].name = "fc.biass";
  other.buffers.clear();
  const std::string message = refusal(other);
  EXPECT_THAT(message, HasSubstr("last.safetensors does not fit the model"));
  EXPECT_THAT(message, HasSubstr("missing: fc.biass (the file has fc.bias)"));
  EXPECT_THAT(message, HasSubstr("other shape: fc.weight is [2, 2], the model has [2, 3]"));
  EXPECT_THAT(message, HasSubstr("unexpected: bn.running_mean [2]"));
  EXPECT_THAT(message, Not(HasSubstr("more")));
}

TEST_F(CheckpointFile, ListsAtMostTenDifferences) {
  Expected other = expected();
  for (int i = 0; i < 20; ++i) other.buffers.push_back({"extra" + std::to_string(i), {1}});
  const std::string message = refusal(other);
  EXPECT_EQ(std::count(message.begin(), message.end(), '\n'), 11);
  EXPECT_THAT(message, HasSubstr("and 10 more"));
}

TEST_F(CheckpointFile, OfAnotherOptimizerIsRefused) {
  Expected other = expected();
  other.states = {"m", "v"};
  EXPECT_THAT(refusal(other), AllOf(HasSubstr("missing: optimizer.m.fc.weight"),
                                    HasSubstr("unexpected: optimizer.momentum.fc.bias")));
}

TEST_F(CheckpointFile, GivesItsWeightsForEvaluationWithoutState) {
  Expected weights_only = expected();
  weights_only.states.clear();
  const Checkpoint loaded = load_weights(saved(), weights_only);
  EXPECT_EQ(loaded.weights, sample().weights);
  EXPECT_EQ(loaded.at.step, 1234);
  EXPECT_TRUE(loaded.states.empty());
}

TEST_F(CheckpointFile, FromElsewhereCanBeEvaluatedButNotResumed) {
  const Checkpoint c = sample();
  const NamedTensor counter{"bn.num_batches_tracked", {}, {3}};
  const std::vector<Tensor> tensors = {view(c.weights[1]), view(c.weights[0]), view(c.buffers[0]),
                                       view(counter)};
  const auto path = folder_ / "elsewhere.safetensors";
  write_safetensors(path, tensors, {{"format", "pt"}});
  EXPECT_EQ(load_weights(path, expected()).weights, c.weights);
  EXPECT_THAT(message_of<InputError>([&] { load_checkpoint(path, expected()); }),
              HasSubstr("can be evaluated, not resumed"));
}

TEST_F(CheckpointFile, WithGarbledMetadataIsRefused) {
  const std::vector<Tensor> none;
  const auto path = folder_ / "garbled.safetensors";
  write_safetensors(path, none, {{"convoy.version", "0.1.0"}, {"convoy.step", "12x"}});
  EXPECT_THAT(message_of<InputError>([&] { load_checkpoint(path, expected()); }),
              HasSubstr("metadata convoy.step, found '12x'"));
  write_safetensors(path, none, {{"convoy.version", "0.1.0"}, {"convoy.step", "12"}});
  EXPECT_THAT(message_of<InputError>([&] { load_checkpoint(path, expected()); }),
              HasSubstr("expected the metadata convoy.position, found none"));
}

TEST_F(CheckpointFile, ThatCannotBeWrittenLeavesTheOldOne) {
  const auto path = saved();
  const std::string before = content(path);
  EXPECT_THROW(save(folder_ / "no such folder/last", sample()), Error);
  EXPECT_EQ(content(path), before);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 1);
}

}  // namespace
}  // namespace convoy::train
