// tests/oracles/flows_simgrid.cpp - when flows over shared links end, by SimGrid's fluid model.
//
// Standard input: number of links, their bytes per second; number of flows, of each its bytes, how many links it
// passes and which. Standard output: the end of each flow in seconds. No latency, no protocol overhead, no cross
// traffic: links alone are shared, max-min fairly. Built and run by tests/unit/test_full_simgrid.c.
#include <simgrid/s4u.hpp>

#include <cstdio>
#include <string>
#include <vector>

namespace sg = simgrid::s4u;

int main() {
  static char name[] = "flows", model[] = "--cfg=network/model:CM02", gamma[] = "--cfg=network/TCP-gamma:0",
              cross[] = "--cfg=network/crosstraffic:0", precision[] = "--cfg=maxmin/precision:1e-9",
              times[] = "--cfg=surf/precision:1e-9", quiet[] = "--log=root.thres:critical";
  char *args[] = {name, model, gamma, cross, precision, times, quiet, nullptr};
  int n_args = 7, n_links, n_flows;
  sg::Engine engine(&n_args, args);
  auto *zone = sg::create_full_zone("zone");
  std::vector<sg::Link *> link;
  if (std::scanf("%d", &n_links) != 1) return 2;
  for (int i = 0; i < n_links; i++) {
    double Bps;
    if (std::scanf("%lf", &Bps) != 1) return 2;
    link.push_back(zone->create_link("l" + std::to_string(i), Bps)->set_latency(0)->seal());
  }
  if (std::scanf("%d", &n_flows) != 1) return 2;
  static std::vector<double> end, bytes;
  end.resize(n_flows), bytes.resize(n_flows);
  std::vector<sg::Host *> from(n_flows), to(n_flows);
  for (int i = 0; i < n_flows; i++) {
    int n;
    if (std::scanf("%lf %d", &bytes[i], &n) != 2) return 2;
    std::vector<sg::LinkInRoute> route;
    for (int k = 0, l; k < n; k++) {
      if (std::scanf("%d", &l) != 1) return 2;
      route.emplace_back(link.at(l));
    }
    from[i] = zone->create_host("s" + std::to_string(i), 1e9)->seal();
    to[i] = zone->create_host("r" + std::to_string(i), 1e9)->seal();
    zone->add_route(from[i]->get_netpoint(), to[i]->get_netpoint(), nullptr, nullptr, route, false);
  }
  zone->seal();
  static int token;
  for (int i = 0; i < n_flows; i++) {
    sg::Actor::create("s", from[i], [i]() { sg::Mailbox::by_name(std::to_string(i))->put(&token, (uint64_t)bytes[i]); });
    sg::Actor::create("r", to[i], [i]() {
      sg::Mailbox::by_name(std::to_string(i))->get<int>();
      end[i] = sg::Engine::get_clock();
    });
  }
  engine.run();
  for (int i = 0; i < n_flows; i++) std::printf("%.12g\n", end[i]);
  return 0;
}
