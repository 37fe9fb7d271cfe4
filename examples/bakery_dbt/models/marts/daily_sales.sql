select cast(o.ordered_at as date) as day, s.name as shop, count(*) as orders, sum(o.total) as revenue
from {{ ref('order_totals') }} o
join {{ ref('raw_shops') }} s on s.id = o.shop_id
group by cast(o.ordered_at as date), s.name
