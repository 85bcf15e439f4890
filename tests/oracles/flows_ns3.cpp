// tests/oracles/flows_ns3.cpp - when messages between hosts end, packet by packet, by ns-3.
//
// Standard input: number of nodes (hosts and switches), number of cables, of each its two ends and bytes per second;
// number of messages, of each the two hosts and its bytes. Standard output: the end of each message in seconds. TCP
// over the shortest way, windows of 64 KiB and first-in-first-out queues that hold them all: nothing is lost, as on
// links with credits. Payload is counted, headers take their share of the rate. Built and run by
// tests/unit/test_full_ns3.c.
#include <ns3/applications-module.h>
#include <ns3/core-module.h>
#include <ns3/internet-module.h>
#include <ns3/network-module.h>
#include <ns3/point-to-point-module.h>
#include <ns3/traffic-control-module.h>

#include <cstdio>
#include <vector>

using namespace ns3;

static std::vector<double> got, wanted, end_s;

static void received(int message, Ptr<const Packet> packet, const Address &) {
  got[message] += packet->GetSize();
  if (end_s[message] == 0 && got[message] >= wanted[message]) end_s[message] = Simulator::Now().GetSeconds();
}

int main() {
  int n_nodes, n_cables, n_messages;
  Config::SetDefault("ns3::TcpL4Protocol::SocketType", TypeIdValue(TcpNewReno::GetTypeId()));
  Config::SetDefault("ns3::TcpSocket::SegmentSize", UintegerValue(1448));
  Config::SetDefault("ns3::TcpSocket::SndBufSize", UintegerValue(1 << 16));
  Config::SetDefault("ns3::TcpSocket::RcvBufSize", UintegerValue(1 << 16));
  Config::SetDefault("ns3::TcpSocket::InitialCwnd", UintegerValue(64));
  if (std::scanf("%d %d", &n_nodes, &n_cables) != 2) return 2;
  NodeContainer nodes;
  nodes.Create(n_nodes);
  InternetStackHelper().Install(nodes);
  Ipv4AddressHelper addresses("10.0.0.0", "255.255.255.252");
  for (int i = 0; i < n_cables; i++) {
    int a, b;
    double Bps;
    if (std::scanf("%d %d %lf", &a, &b, &Bps) != 3) return 2;
    PointToPointHelper cable;
    cable.SetDeviceAttribute("DataRate", DataRateValue(DataRate((uint64_t)(8 * Bps))));
    cable.SetChannelAttribute("Delay", TimeValue(MicroSeconds(1)));
    cable.SetQueue("ns3::DropTailQueue", "MaxSize", StringValue("100000p"));
    NetDeviceContainer ends = cable.Install(nodes.Get(a), nodes.Get(b));
    addresses.Assign(ends);
    TrafficControlHelper().Uninstall(ends); // no queue discipline above the cable's own queue
    addresses.NewNetwork();
  }
  Ipv4GlobalRoutingHelper::PopulateRoutingTables();
  if (std::scanf("%d", &n_messages) != 1) return 2;
  got.resize(n_messages), wanted.resize(n_messages), end_s.resize(n_messages);
  for (int i = 0; i < n_messages; i++) {
    int from, to;
    if (std::scanf("%d %d %lf", &from, &to, &wanted[i]) != 3) return 2;
    uint16_t port = 1000 + i;
    Ipv4Address at = nodes.Get(to)->GetObject<Ipv4>()->GetAddress(1, 0).GetLocal();
    PacketSinkHelper sink("ns3::TcpSocketFactory", InetSocketAddress(Ipv4Address::GetAny(), port));
    sink.Install(nodes.Get(to)).Get(0)->TraceConnectWithoutContext("Rx", MakeBoundCallback(&received, i));
    BulkSendHelper source("ns3::TcpSocketFactory", InetSocketAddress(at, port));
    source.SetAttribute("MaxBytes", UintegerValue((uint64_t)wanted[i]));
    source.SetAttribute("SendSize", UintegerValue(1448));
    source.Install(nodes.Get(from)).Start(Seconds(0));
  }
  Simulator::Stop(Seconds(1000));
  Simulator::Run();
  for (int i = 0; i < n_messages; i++) std::printf("%.12g\n", end_s[i]);
  Simulator::Destroy();
  return 0;
}
