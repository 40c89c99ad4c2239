#include "attend/serve/http/head_policy.h"

#include <gtest/gtest.h>

namespace attend::serve {
namespace {

HeadFields plain_head() {
  HeadFields head;
  head.num_hosts = 1;
  head.host = "localhost:30000";
  return head;
}

int status_of(const HeadFields& head) {
  const auto error = check_head(head);
  return error ? error->status : 200;
}

TEST(CheckHead, RequiresOneWellFormedHost) {
  HeadFields head = plain_head();
  EXPECT_EQ(status_of(head), 200);
  head.num_hosts = 2;
  EXPECT_EQ(status_of(head), 400);
  head.num_hosts = 0;
  EXPECT_EQ(status_of(head), 400);
  head.http_1_0 = true;
  EXPECT_EQ(status_of(head), 200);
  for (const std::string_view host : {"a b", "user@localhost", "a/b", "\xc3\xa4"}) {
    head = plain_head();
    head.host = host;
    EXPECT_EQ(status_of(head), 400) << host;
  }
}

TEST(CheckHead, RejectsCodingsAndExpectationsThatAreNotSupported) {
  HeadFields head = plain_head();
  for (const auto& [coding, status] :
       {std::pair{"Chunked", 200}, {"gzip, chunked", 501}, {"chunked, gzip", 501}}) {
    head.transfer_encoding = coding;
    EXPECT_EQ(status_of(head), status) << coding;
  }
  head = plain_head();
  for (const auto& [expect, status] : {std::pair{"100-Continue", 200}, {"foo", 417}}) {
    head.expect = expect;
    EXPECT_EQ(status_of(head), status) << expect;
  }
  head.http_1_0 = true;  // HTTP/1.0 has no expectations
  EXPECT_EQ(status_of(head), 200);
  head.content_encoding = "gzip";
  EXPECT_EQ(status_of(head), 415);
}

TEST(AllowedHosts, OfALocalServerAreNamesThatDnsDoesNotResolve) {
  const AllowedHosts hosts({}, /*is_loopback=*/true);
  for (const std::string_view host : {"localhost", "LocalHost:30000", "127.0.0.1:80", "[::1]:30000",
                                      "gpu-box", "api.localhost", "localhost.", ""})
    EXPECT_TRUE(hosts.accept(host)) << host;
  for (const std::string_view host :
       {"evil.example", "127.0.0.1.evil.example", "localhost.evil.example:30000", "evil.example."})
    EXPECT_FALSE(hosts.accept(host)) << host;
}

TEST(AllowedHosts, AreListed) {
  const AllowedHosts hosts({"Chat.example", "*.lab.example"}, /*is_loopback=*/false);
  for (const std::string_view host : {"chat.example:443", "a.lab.example", "10.0.0.1"})
    EXPECT_TRUE(hosts.accept(host)) << host;
  for (const std::string_view host : {"lab.example", "evilchat.example", "evillab.example"})
    EXPECT_FALSE(hosts.accept(host)) << host;
  EXPECT_TRUE(AllowedHosts({}, /*is_loopback=*/false).accept("any.example"));
  EXPECT_TRUE(AllowedHosts({"*"}, /*is_loopback=*/true).accept("any.example"));
}

TEST(AllowedOrigins, AreTheServersOwnAndListedOnes) {
  const AllowedOrigins origins({"https://chat.example/", "http://other.example:81"});
  HeadFields head = plain_head();
  const auto is_foreign = [&](std::string_view origin) {
    head.origin = origin;
    return origins.is_foreign(head);
  };
  EXPECT_FALSE(is_foreign(""));
  EXPECT_FALSE(is_foreign("http://localhost:30000"));
  EXPECT_FALSE(is_foreign("https://CHAT.example"));
  EXPECT_TRUE(is_foreign("http://localhost:3000"));
  EXPECT_TRUE(is_foreign("http://chat.example"));
  EXPECT_TRUE(is_foreign("null"));
  head.sec_fetch_site = "same-origin";  // set by the browser, when a proxy has changed Host
  EXPECT_FALSE(is_foreign("https://proxied.example"));
  head.sec_fetch_site = "same-site";
  EXPECT_TRUE(is_foreign("https://proxied.example"));
  EXPECT_EQ(origins.header_for("http://other.example:81"), "http://other.example:81");
  EXPECT_EQ(origins.header_for("https://evil.example"), "");
  EXPECT_EQ(AllowedOrigins({"*"}).header_for("https://evil.example"), "*");
}

}  // namespace
}  // namespace attend::serve
