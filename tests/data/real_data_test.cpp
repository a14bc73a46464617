// The real sets, read from where scripts/get-data puts them. CONVOY_DATA names the folder that
// holds mnist/, fashion-mnist/ and cifar10/; without the data a test says so and is skipped.

#include <cstdlib>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "convoy/data/dataset.hpp"

#include "tests/data/helpers.hpp"

namespace convoy::data {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::FloatNear;

std::string find(const std::string& name) {
  const char* root = std::getenv("CONVOY_DATA");
  for (const std::string& base : {std::string(root != nullptr ? root : CONVOY_SOURCE_DIR "/data"),
                                  std::string("/usr/share/datasets")}) {
    if (std::filesystem::exists(std::filesystem::path(base) / name)) return base + "/" + name;
  }
  return "";
}

#define NEEDS(path, name)                                                                      \
  if ((path).empty())                                                                          \
  GTEST_SKIP() << "NOT TESTED: no " << (name) << " data. Run `scripts/get-data " << (name)     \
               << "`, and set CONVOY_DATA to the folder above it unless that is data/ of the " \
                  "source tree"

std::vector<int> label_counts(const Dataset& set) {
  std::vector<int> counts(static_cast<size_t>(set.classes()));
  for (int64_t i = 0; i < set.size(); ++i) ++counts.at(static_cast<size_t>(set.label(i)));
  return counts;
}

TEST(RealData, FashionMnistHasItsKnownSizesAndMoments) {
  const std::string path = find("fashion-mnist");
  NEEDS(path, "fashion-mnist");
  const Source source = open(files("idx", path));
  EXPECT_EQ(source.train->size(), 60000);
  EXPECT_EQ(source.test->size(), 10000);
  EXPECT_EQ(source.train->shape(), (model::Shape{1, 28, 28}));
  EXPECT_THAT(label_counts(*source.train), Each(6000));
  EXPECT_THAT(label_counts(*source.test), Each(1000));
  EXPECT_THAT(source.mean, ElementsAre(FloatNear(0.2860F, 5e-5F)));
  EXPECT_THAT(source.std, ElementsAre(FloatNear(0.3530F, 5e-5F)));
}

TEST(RealData, MnistHasItsKnownSizesAndMoments) {
  const std::string path = find("mnist");
  NEEDS(path, "mnist");
  const Source source = open(files("idx", path));
  EXPECT_EQ(source.train->size(), 60000);
  EXPECT_EQ(source.test->size(), 10000);
  EXPECT_EQ(source.train->classes(), 10);
  EXPECT_EQ(source.train->label(0), 5);
  EXPECT_EQ(source.test->label(0), 7);
  EXPECT_THAT(source.mean, ElementsAre(FloatNear(0.1307F, 5e-5F)));
  EXPECT_THAT(source.std, ElementsAre(FloatNear(0.3081F, 5e-5F)));
}

TEST(RealData, Cifar10HasItsKnownSizesAndMoments) {
  const std::string path = find("cifar10");
  NEEDS(path, "cifar10");
  const Source source = open(files("cifar10", path));
  EXPECT_EQ(source.train->size(), 50000);
  EXPECT_EQ(source.test->size(), 10000);
  EXPECT_THAT(label_counts(*source.train), Each(5000));
  EXPECT_THAT(source.mean, ElementsAre(FloatNear(0.4914F, 5e-5F), FloatNear(0.4822F, 5e-5F),
                                       FloatNear(0.4465F, 5e-5F)));
  EXPECT_THAT(source.std, ElementsAre(FloatNear(0.2470F, 5e-5F), FloatNear(0.2435F, 5e-5F),
                                      FloatNear(0.2616F, 5e-5F)));
}

}  // namespace
}  // namespace convoy::data
