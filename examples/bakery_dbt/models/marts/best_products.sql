select kind, sku, amount, place
from (
    select kind, sku, sum(amount) as amount,
           rank() over (partition by kind order by sum(amount) desc) as place
    from {{ ref('priced_lines') }}
    group by kind, sku
) ranked
where place <= 2
