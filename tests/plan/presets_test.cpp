// Published trainings: each within a tenth, by one set of assumptions for each cluster.

#include "convoy/plan/presets.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "convoy/base/error.hpp"

namespace convoy::plan {
namespace {

TEST(Presets, ComeWithinATenthOfWhatWasPublished) {
  int compared = 0;
  for (const Preset& p : presets()) {
    for (const PresetResult& r : run(p)) {
      EXPECT_GT(r.speedup, 0) << p.name;
      if (r.row.published == 0) continue;
      ++compared;
      EXPECT_NEAR(r.speedup / r.row.published, 1, 0.1)
          << p.name << " " << r.row.model << " on " << r.row.workers << ": " << r.speedup;
    }
  }
  EXPECT_EQ(compared, 5);
}

TEST(Presets, SayWhatIsAssumed) {
  for (const Preset& p : presets()) {
    EXPECT_GT(p.cluster.note.size(), 50U) << p.name;
    EXPECT_THAT(describe(p, run(p)), testing::HasSubstr(p.cluster.note));
  }
}

TEST(Presets, AreFoundByName) {
  EXPECT_EQ(preset("das16-cori").cluster.size(), 128);
  EXPECT_THAT([] { preset("das17"); },
              testing::ThrowsMessage<InputError>(testing::HasSubstr("das16-cori")));
}

TEST(Presets, HaveZousTable) {
  EXPECT_THAT(overhead_table(),
              testing::AllOf(testing::HasSubstr("50.00 %"), testing::HasSubstr("2.27 %"),
                             testing::HasSubstr("33.33 %"), testing::HasSubstr("0.75 %")));
}

}  // namespace
}  // namespace convoy::plan
