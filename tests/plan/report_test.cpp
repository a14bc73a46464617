// The page of a plan: whole, self-contained, and true to what was found.

#include "convoy/plan/report.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "convoy/model/zoo.hpp"
#include "convoy/plan/chart.hpp"

namespace convoy::plan {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class Report : public testing::Test {
 protected:
  Report() {
    cluster_ = parse_cluster(
        "name: <lab & co>\nnodes: [{count: 8, cores: 4, gflops: 500, memory: 16GiB, link: "
        "{bandwidth: 1Gbit/s}}]\n",
        "test");
    workload_ = workload_of(model::build("alexnet"));
    options_.statistics.batch = 128;
    found_ = search(workload_, cluster_, options_);
    data_ = {&workload_, &cluster_, &found_, advise(workload_, cluster_, options_, found_),
             options_};
  }

  Cluster cluster_;
  Workload workload_;
  SearchOptions options_;
  SearchResult found_;
  ReportData data_;
};

TEST_F(Report, IsOneFileThatNeedsNothing) {
  const std::string html = report_html(data_);
  EXPECT_THAT(html, AllOf(HasSubstr("<!DOCTYPE html>"), HasSubstr("</html>"),
                          HasSubstr("&lt;lab &amp; co&gt;"), Not(HasSubstr("<lab")),
                          Not(HasSubstr("http")), Not(HasSubstr("<script"))));
  size_t charts = 0;
  for (size_t at = html.find("<svg"); at != std::string::npos; at = html.find("<svg", at + 1)) {
    ++charts;
  }
  EXPECT_EQ(charts, 4U);
}

TEST_F(Report, SaysWhatWasChosen) {
  const std::string text = describe(data_);
  EXPECT_THAT(text, AllOf(HasSubstr("plan    alexnet"), HasSubstr("limit"), HasSubstr("helps"),
                          HasSubstr("workers 1: 1.00×")));
  EXPECT_THAT(report_html(data_), HasSubstr(describe(found_.best().configuration)));
}

TEST_F(Report, TellsTheSettings) {
  Configuration c;
  c.groups = 2;
  c.batch = 64;
  c.classifier = "hybrid";
  c.copies = 4;
  EXPECT_THAT(settings_of(c), testing::ElementsAre("train.batch=64", "cluster.groups=2",
                                                   "parallel.classifier=hybrid",
                                                   "parallel.copies=4", "sync.reproducible=false"));
}

TEST(Chart, DrawsWhateverNumbers) {
  Chart chart;
  chart.title = "a";
  chart.series = {{"one", {{1, 0}}, false}};
  EXPECT_THAT(draw(chart), Not(HasSubstr("nan")));
  chart.series = {{"many", {{1, 1e-9}, {1000, 1e9}}, true}};
  chart.doubling = true;
  EXPECT_THAT(draw(chart), AllOf(Not(HasSubstr("nan")), Not(HasSubstr("inf"))));
  EXPECT_EQ(draw_timeline({}, "nothing"), "");
}

}  // namespace
}  // namespace convoy::plan
