//! The plans that the algorithms for tests become, by identity: a change of a pass that changes a plan is seen here. It
//! is right to change the table together with the pass; the plan itself is shown by `warpway plan show`.

use warpway_plan::testing;

/// By name; for 2, 3 and 8 ranks, the first eight bytes.
const IDENTITIES: [(&str, [&str; 3]); 14] = [
    ("all_gather_put", ["301338f500f1300d", "df1f84a57c9029f2", "5f0a9b8cd7210645"]),
    ("all_gather_ring", ["a5fc7cf5083198da", "d4ac0534ef515c5c", "550516c32843649c"]),
    ("all_gather_groups", ["769c6593eb872ee7", "adc0871654e8701e", "bc4d1e4b9837e2d0"]),
    ("all_gather_v", ["7b01de312071dd64", "fd011f2973f5f450", "c2678821657f1c2f"]),
    ("all_reduce_packets", ["6936b6836b0287c5", "299e770fc9172deb", "af89bcfc56f9729e"]),
    ("all_reduce_two_shot", ["9b5be92913cb46b5", "b114df89eb31b6fe", "9685db8504c356fe"]),
    ("all_reduce_switch", ["49a7ffb24f2cbb30", "39ccb8cbb960f11d", "6fe5e073c10aa511"]),
    ("reduce_scatter_ring", ["7cd50a63736c12e9", "8721715ea773453d", "7ec27d2747e028f7"]),
    ("all_to_all", ["a428f42835abd89f", "2ec23546082fe18e", "dd89d31e7e868aa0"]),
    ("all_to_all_v", ["7d3b2a370c7e0862", "59d4c2a9aa7a66a4", "b62af92f11ba5a26"]),
    ("broadcast", ["6f4eadc385e444ca", "6b87a910216cfd5f", "b2802bc97112cb25"]),
    ("send_recv_pipeline", ["f5270ec27b9bb45a", "75c6cf467367dec6", "7108ca621f8fa5ea"]),
    ("send_recv_port", ["7238192f7ed81960", "a9a86ee6faddcd8c", "d37a4d31e0267ba6"]),
    ("send_recv_semaphore", ["5ea21011c8f0d6c2", "fbfff7c2ebc906bb", "d11179858b2bd3a3"]),
];

#[test]
fn plans_are_what_they_were() {
    let mut found = Vec::new();
    let plans = [2, 3, 8].map(|n| testing::all(n).unwrap());
    for (at, plan) in plans[0].iter().enumerate() {
        let short = |n: usize| plans[n][at].identity().to_string()[..16].to_owned();
        found.push((plan.name.as_str(), [0, 1, 2].map(short)));
    }
    let expected = IDENTITIES.map(|(name, identities)| (name, identities.map(str::to_owned)));
    assert_eq!(found, expected);
}
