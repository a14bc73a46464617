// Packed images on several workers, as real processes: the bits of one, however the workers hold
// the samples; and what is said of files that are not as they should be.

#include <cstdlib>
#include <tuple>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "convoy/data/packed.hpp"

#include "tests/app/workers.hpp"
#include "tests/data/images.hpp"

namespace convoy::app {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

/// A folder of 58 small images, JPEG and PNG, gray and in colours, of several sizes, and what they
/// pack to. Four grains to a batch, 11 steps in three epochs.
class DataWorkers : public Workers {
 protected:
  static constexpr const char* kPackedJob = R"(model:
  name: small
  layers:
  - {conv: {out: 8, kernel: 3, pad: 1, bias: false}, name: stem}
  - batch-norm
  - relu
  - global-average-pool
  - {linear: 2, name: classes}
  - softmax-cross-entropy
data:
  kind: packed
  path: set.pack
  shape: [3, 8, 8]
  augment: {flip: true, crop_area: [0.3, 1], jitter: [0.2, 0.2, 0.2]}
train:
  batch: 16
  epochs: 3
  lr: {peak: 0.05, schedule: one-cycle}
engine: {grain: 4, lanes: 1, algorithms: direct}
)";

  void SetUp() override {
    Workers::SetUp();
    put(folder_ / "job.yaml", kPackedJob);
    write_images("images", 1);
    ASSERT_EQ(convoy({"pack", "images", "-o", "set.pack"}).code, 0);
  }

  void write_images(const std::string& folder, uint64_t seed) const {
    for (const auto& [split, images] : {std::pair{"train", 29}, std::pair{"val", 6}}) {
      for (const char* name : {"cat", "dog"}) {
        const std::filesystem::path to = folder_ / folder / split / name;
        std::filesystem::create_directories(to);
        for (int i = 0; i < images; ++i) {
          const data::Picture picture =
              data::picture(9 + i % 7, 8 + i % 5, i % 3 == 0 ? 1 : 3, seed++);
          const bool jpeg = i % 2 == 0;
          const data::Encoded bytes = jpeg ? data::make_jpeg(picture) : data::make_png(picture);
          put(to / (std::to_string(i) + (jpeg ? ".jpg" : ".png")),
              {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
        }
      }
    }
  }

  /// Turns a bit in the middle of a record; its name in messages.
  std::string damage(int64_t record) const {
    const data::PackedFile file(folder_ / "set.pack");
    const data::PackedRecord found = file.record(record);
    std::string bytes = content(folder_ / "set.pack");
    char& byte = bytes[static_cast<size_t>(found.offset + found.length / 2)];
    byte = static_cast<char>(byte ^ 1);
    put(folder_ / "set.pack", bytes);
    return fmt::format("set.pack: record {} ({})", record, found.source);
  }
};

TEST_F(DataWorkers, GiveTheBitsOfOneHoweverTheyHoldTheSamples) {
  const Outcome alone = train_on(1, "one");
  ASSERT_EQ(alone.code, 0) << alone.all();
  EXPECT_THAT(alone.out, HasSubstr("samples in memory: "));
  using Case = std::tuple<int, int, std::string>;
  for (const auto& [workers, copies, exchange] :
       {Case{2, 1, "fetch"}, Case{2, 1, "shuffle"}, Case{2, 2, "shuffle"}, Case{3, 1, "shuffle"},
        Case{3, 2, "auto"}, Case{5, 1, "fetch"}, Case{5, 1, "shuffle"}, Case{5, 2, "shuffle"},
        Case{5, 5, "auto"}}) {
    const std::string run = fmt::format("{}-{}-{}", workers, copies, exchange);
    const Outcome outcome = train_on(
        workers, run, {fmt::format("data.copies={}", copies), "data.exchange=" + exchange});
    ASSERT_EQ(outcome.code, 0) << outcome.all();
    EXPECT_TRUE(tensors(run) == tensors("one")) << run << " gives other weights";
    EXPECT_THAT(outcome.out, HasSubstr("samples in memory"));
    const auto store = events(run, "store");
    ASSERT_EQ(store.size(), 1U) << run;
    EXPECT_EQ(store.front().at("copies"), copies);
    const bool exchanges = copies < workers;
    EXPECT_EQ(store.front().at("fetched_records") > 0, exchanges) << run;
    EXPECT_EQ(store.front().at("shuffles") > 0, exchanges && exchange == "shuffle") << run;
    EXPECT_EQ(store.front().at("moved_bytes") > 0, exchanges && exchange == "shuffle") << run;
  }
}

TEST_F(DataWorkers, GiveTheBitsOfOneWithUnequalShares) {
  ASSERT_EQ(train_on(1, "one").code, 0);
  for (const std::string shares : {"[0, 4]", "[3, 1]"}) {
    const Outcome outcome =
        train_on(2, shares, {"sync.shares=" + shares, "data.copies=1", "data.exchange=shuffle"});
    ASSERT_EQ(outcome.code, 0) << outcome.all();
    EXPECT_TRUE(tensors(shares) == tensors("one")) << shares;
  }
}

TEST_F(DataWorkers, HaveAsManyCopiesAsFitIfTheJobDoesNotSay) {
  ASSERT_EQ(train_on(1, "one").code, 0);
  const Outcome roomy = train_on(2, "roomy", {"data.memory=1 GiB"});
  EXPECT_THAT(roomy.out, HasSubstr("all of them at every worker")) << roomy.all();
  const Outcome narrow = train_on(2, "narrow", {"data.memory=1 KiB"});
  ASSERT_EQ(narrow.code, 0) << narrow.all();
  EXPECT_THAT(narrow.out, HasSubstr("samples are read from disk"));
  EXPECT_TRUE(tensors("roomy") == tensors("one"));
  EXPECT_TRUE(tensors("narrow") == tensors("one"));
}

TEST_F(DataWorkers, RefuseMoreCopiesThanTheyAre) {
  const Outcome outcome = train_on(2, "run", {"data.copies=3"});
  EXPECT_EQ(outcome.code, 2) << outcome.all();
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("data.copies: 3"), HasSubstr("(2)")));
}

TEST_F(DataWorkers, GoOnOnAnotherNumberOfThem) {
  ASSERT_EQ(train_on(1, "one").code, 0);
  const Outcome three =
      train_on(3, "run", {"train.max_steps=5", "data.copies=1", "data.exchange=shuffle"});
  ASSERT_EQ(three.code, 0) << three.all();
  const Outcome two = resume_on(2, "run", "train.max_steps=8");
  ASSERT_EQ(two.code, 0) << two.all();
  const Outcome alone = resume_on(1, "run", "train.max_steps=off");
  ASSERT_EQ(alone.code, 0) << alone.all();
  EXPECT_TRUE(tensors("run") == tensors("one"));
}

TEST_F(DataWorkers, SayWhoHasAnotherFile) {
  write_images("others", 1000);
  ASSERT_EQ(convoy({"pack", "others", "-o", "other.pack"}).code, 0);
  const Outcome outcome =
      two("job.yaml --run run", "job.yaml --run run --set data.path=other.pack");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.all(), AllOf(HasSubstr("fingerprint of the data"), HasSubstr("worker 0"),
                                   HasSubstr("worker 1"), Not(HasSubstr("data.shape"))));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "run"));
}

TEST_F(DataWorkers, EndWithTheNameOfADamagedSample) {
  const std::string name = damage(40);
  for (const auto& [workers, memory] : {std::pair{1, "1 GiB"}, std::pair{1, "1 KiB"},
                                        std::pair{2, "1 GiB"}, std::pair{3, "1 GiB"}}) {
    const Outcome outcome = train_on(workers, fmt::format("{}-{}", workers, memory),
                                     {"data.copies=1", fmt::format("data.memory={}", memory)});
    EXPECT_EQ(outcome.code, 2) << outcome.all();
    EXPECT_THAT(outcome.err, AllOf(HasSubstr(name), HasSubstr("checksum is wrong")))
        << workers << " workers, " << memory;
  }
}

TEST_F(DataWorkers, LeaveOutDamagedSamplesAndCountThem) {
  const std::vector<std::string> names{damage(3), damage(40), damage(57)};
  const std::vector<std::string> settings{"data.bad=skip"};
  const Outcome alone = train_on(1, "one", settings);
  ASSERT_EQ(alone.code, 0) << alone.all();
  EXPECT_THAT(alone.out, HasSubstr("3 damaged samples left out"));
  using Case = std::tuple<int, int, std::string>;
  for (const auto& [workers, copies, exchange] :
       {Case{2, 2, "fetch"}, Case{3, 1, "shuffle"}, Case{5, 1, "fetch"}}) {
    const std::string run = fmt::format("{}-{}", workers, copies);
    const Outcome outcome = train_on(
        workers, run,
        {"data.bad=skip", fmt::format("data.copies={}", copies), "data.exchange=" + exchange});
    ASSERT_EQ(outcome.code, 0) << outcome.all();
    EXPECT_TRUE(tensors(run) == tensors("one")) << run;
    EXPECT_THAT(outcome.out, HasSubstr("3 damaged samples left out")) << run;
    EXPECT_EQ(events(run, "stop").front().at("bad_samples"), 3);
    std::string told;
    for (const nlohmann::json& event : events(run, "bad_sample")) told += event.dump();
    for (const std::string& name : names) EXPECT_THAT(told, HasSubstr(name)) << run;
  }
}

TEST_F(DataWorkers, RefuseAFileThatWasCutShort) {
  const std::string bytes = content(folder_ / "set.pack");
  put(folder_ / "set.pack", bytes.substr(0, bytes.size() - 100));
  for (const int workers : {1, 2}) {
    const Outcome outcome = train_on(workers, "run");
    EXPECT_EQ(outcome.code, 2) << outcome.all();
    EXPECT_THAT(outcome.err, AllOf(HasSubstr("set.pack"), HasSubstr("cut short"))) << workers;
  }
}

TEST_F(DataWorkers, PackAFolderOnceAndGiveTheSameBits) {
  ASSERT_EQ(train_on(1, "packed").code, 0);
  const std::vector<std::string> folder{"data.kind=folder", "data.path=images"};
  for (const int workers : {3, 1}) {
    const std::string run = std::to_string(workers);
    const Outcome outcome = train_on(workers, run, folder);
    ASSERT_EQ(outcome.code, 0) << outcome.all();
    EXPECT_TRUE(tensors(run) == tensors("packed")) << workers << " workers";
  }
  EXPECT_EQ(content(folder_ / "images.pack"), content(folder_ / "set.pack"));
}

TEST_F(DataWorkers, RefuseAFolderWithAnEmptyClass) {
  std::filesystem::create_directories(folder_ / "images/train/bird");
  for (const int workers : {1, 2}) {
    const Outcome outcome = train_on(workers, "run", {"data.kind=folder", "data.path=images"});
    EXPECT_EQ(outcome.code, 2) << outcome.all();
    EXPECT_THAT(outcome.err, HasSubstr("bird")) << workers << " workers";
  }
  EXPECT_FALSE(std::filesystem::exists(folder_ / "images.pack"));
}

TEST_F(DataWorkers, TrainOnPhotographs) {
  const char* const root = std::getenv("CONVOY_DATA");
  const std::filesystem::path tar =
      std::filesystem::path(root != nullptr ? root : CONVOY_SOURCE_DIR "/data") /
      "imagenette2-224-part.tar";
  if (!std::filesystem::exists(tar)) {
    GTEST_SKIP() << "NOT TESTED: no imagenette2-224-part.tar; CONVOY_DATA names the folder with it";
  }
  std::filesystem::create_directories(folder_ / "photos");
  const std::string unpack = fmt::format("tar -xf '{}' -C '{}' --strip-components=1", tar.string(),
                                         (folder_ / "photos").string());
  ASSERT_EQ(std::system(unpack.c_str()), 0);
  const Outcome packed =
      convoy({"pack", "photos", "-o", "photos.pack", "--resize", "64", "--bad", "skip"});
  ASSERT_EQ(packed.code, 0) << packed.all();
  const std::vector<std::string> settings{"data.path=photos.pack", "data.shape=[3, 32, 32]",
                                          "model=resnet-20", "train.max_steps=1",
                                          "train.eval_every=off"};
  std::vector<std::string> shared = settings;
  shared.insert(shared.end(), {"data.copies=1", "data.exchange=shuffle"});
  const Outcome alone = train_on(1, "one", settings);
  ASSERT_EQ(alone.code, 0) << alone.all();
  const Outcome three = train_on(3, "three", shared);
  ASSERT_EQ(three.code, 0) << three.all();
  EXPECT_TRUE(tensors("three") == tensors("one"));
}

}  // namespace
}  // namespace convoy::app
